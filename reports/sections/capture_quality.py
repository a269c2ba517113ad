"""Capture quality: what about the recording weakens the figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Column, Quality, Severity
from tracekit.reports.components import SEVERITY_LABELS, badge, name, notice, table
from tracekit.units import Unit

if TYPE_CHECKING:
    from markupsafe import Markup

    from tracekit.findings import Result

ORDER = 70
TITLE = "Capture quality"

COLUMNS = (
    Column("Weight"),
    Column("Check"),
    Column("Rank"),
    Column("Count", Unit.COUNT),
    Column("What it means"),
)
WEIGHT = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}


def render(result: Result, /) -> Markup | None:
    """A row per remark, the gravest first, or the sentence that there is none."""
    if not result.quality:
        return notice("No check of the recording left a remark.", "clear")
    rows = [
        (
            badge(SEVERITY_LABELS[remark.severity], remark.severity.value),
            name(remark.check),
            "all" if remark.rank is None else remark.rank,
            remark.count,
            name(remark.detail, 400),
        )
        for remark in sorted(result.quality, key=_gravest_first)
    ]
    return table(f"Remarks on the recording: {len(rows):,}", COLUMNS, rows)


def _gravest_first(remark: Quality) -> tuple[int, int, str]:
    return WEIGHT[remark.severity], -1 if remark.rank is None else remark.rank, remark.check
