"""Not checked: what the capture could not settle, and how to record what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Column, Status, ranked
from tracekit.reports.components import anchor, found, name, table

if TYPE_CHECKING:
    from markupsafe import Markup

    from tracekit.results import Result

ORDER = 50
TITLE = "Not checked, and how to record it"


def render(result: Result, /) -> Markup | None:
    """A row per skipped finding, with the reason and the cure; None when there is none."""
    skipped = found(ranked(result.findings), Status.SKIPPED)
    if not skipped:
        return None
    columns = (Column("Check"), Column("What is missing and how to record it"), Column("Detector"))
    rows = [(name(f.title), name(f.why or "No reason given.", 400), name(f.id)) for f in skipped]
    return table(
        f"Checks without data: {len(skipped):,}", columns, rows, ids=[anchor(f) for f in skipped]
    )
