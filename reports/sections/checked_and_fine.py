"""Checked and fine: what was measured and lies within its limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Column, Status, ranked
from tracekit.reports.components import anchor, found, name, quantity_text, table

if TYPE_CHECKING:
    from markupsafe import Markup

    from tracekit.results import Result

ORDER = 40
TITLE = "Checked and fine"


def render(result: Result, /) -> Markup | None:
    """A row per clear finding, with the measured value and the limit; None when there is none."""
    clear = found(ranked(result.findings), Status.CLEAR)
    if not clear:
        return None
    columns = (Column("Check"), Column("Measured"), Column("Limit"), Column("Detector"))
    rows = [
        (
            name(finding.title),
            quantity_text(finding.measured),
            quantity_text(finding.limit) if finding.limit else "none",
            name(finding.id),
        )
        for finding in clear
    ]
    return table(
        f"Checks within their limits: {len(clear):,}", columns, rows, ids=[anchor(f) for f in clear]
    )
