"""Values of many events at once, as a column takes them.

Most are right as they are: that is looked at first, since this runs over every event of a trace.
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import prod
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from tracekit.collectors.chrome_trace.events import NO_RAW

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.collectors.chrome_trace.events import Event

MAX_SHAPES_LENGTH = 64 << 10
EXTERNAL_IDS = ("external_id", "legacy_external_id")
"""Fields of the external id: today's, and that of 2020."""
_N_SHAPES = 1 << 14
_SHAPE = msgspec.json.Decoder(list[int])


def listed(name: str, things: Sequence[object]) -> list[Any]:
    """One attribute of each thing."""
    return list(map(attrgetter(name), things))


def first_of(args: Sequence[Any], name: str, other: str, missing: object = None) -> list[Any]:
    """One field of each, another one where it is missing."""
    values = listed(name, args)
    if missing not in values:
        return values
    others = listed(other, args)
    return [b if a is missing else a for a, b in zip(values, others, strict=True)]


def place(events: Sequence[Event], args: Sequence[Any]) -> dict[str, list[Any]]:
    """Device, stream, correlation, external id of GPU rows; the row's place where args lack it."""
    return {
        "device": row_numbers(_or_row(listed("device", args), "pid", events)),
        "stream": row_numbers(_or_row(listed("stream", args), "tid", events)),
        "correlation": listed("correlation", args),
        "external_id": first_of(args, *EXTERNAL_IDS),
    }


def _or_row(values: list[Any], row: str, events: Sequence[Event]) -> list[Any]:
    if None not in values:
        return values
    return [b if a is None else a for a, b in zip(values, listed(row, events), strict=True)]


def row_numbers(values: list[Any]) -> list[int | None]:
    """`row_number` of each."""
    return values if set(map(type, values)) <= {int} else list(map(row_number, values))


def row_number(value: object) -> int | None:
    """A row's place as a number: today an integer, in old files "stream 7" or "123 (python)"."""
    if type(value) is int:
        return value
    digits = re.search(r"\d+", str(value)) if value is not None else None
    return int(digits.group()) if digits else None


def texts(raws: Sequence[msgspec.Raw]) -> list[str | None]:
    """JSON as text; null where it is missing or too long."""
    return [
        None
        if raw is NO_RAW or not 0 < len(text := str(raw, "utf-8", "replace")) <= MAX_SHAPES_LENGTH
        else text
        for raw in raws
    ]


def product(shape: msgspec.Raw) -> int | None:
    """Product of a JSON list of integers; null where it is none."""
    return _product(bytes(shape))


@lru_cache(_N_SHAPES)
def _product(shape: bytes) -> int | None:
    try:
        return prod(_SHAPE.decode(shape)) if shape not in {b"", b"[]"} else None
    except (msgspec.MsgspecError, UnicodeError):
        return None
