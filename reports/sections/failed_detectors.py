"""Failed detectors: faults of tracekit itself, so that silence is not taken for health."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Column, Status, ranked
from tracekit.reports.components import anchor, found, name, notice, table

if TYPE_CHECKING:
    from markupsafe import Markup

    from tracekit.results import Result

ORDER = 60
TITLE = "Detectors that failed"


def render(result: Result, /) -> Markup | None:
    """A row per failed finding with its error; None when there is none."""
    failed = found(ranked(result.findings), Status.FAILED)
    if not failed:
        return None
    rows = [(name(f.id), name(f.title), name(f.why or "No message.", 400)) for f in failed]
    columns = (Column("Detector"), Column("Check"), Column("Error"))
    return notice(
        "These are faults of tracekit, not of the run. The problems they look for would not show.",
        "warning",
    ) + table(f"Failed: {len(failed):,}", columns, rows, ids=[anchor(f) for f in failed])
