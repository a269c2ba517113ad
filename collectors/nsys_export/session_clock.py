"""From when on the times of an export count."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracekit.collectors.nsys_export.opened import Export


def base_ns(export: Export) -> int | None:
    """Unix time of the report's zero, null where it is not told.

    With --ts-normalize times are Unix times already.
    """
    if dict(export.facts("META_DATA_EXPORT")).get("EXPORT_PARAM_TIME_NORMALIZE") == "true":
        return 0
    found = export.all_rows("TARGET_INFO_SESSION_START_TIME", {"utcEpochNs": "number"})
    value = found["utcEpochNs"].drop_nulls().min()
    return value if isinstance(value, int) and 0 < value < 1 << 62 else None


def moved_ns(export: Export) -> int:
    """What --ts-shift added to every time."""
    text = dict(export.facts("META_DATA_EXPORT")).get("EXPORT_PARAM_TIME_SHIFT", "0")
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 19 else 0
