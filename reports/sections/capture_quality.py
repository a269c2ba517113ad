"""Capture quality: what about the recording weakens the figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Column, Severity
from tracekit.reports.components import SEVERITY_LABELS, badge, name, notice, ranks_text, table
from tracekit.units import Unit

if TYPE_CHECKING:
    from markupsafe import Markup

    from tracekit.results import Quality, Result

ORDER = 70
TITLE = "Capture quality"

COLUMNS = (
    Column("Weight"),
    Column("Check"),
    Column("Ranks"),
    Column("Count", Unit.COUNT),
    Column("What it means"),
)
WEIGHT = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}


def render(result: Result, /) -> Markup | None:
    """A row per check, the gravest first, or the sentence that there is none."""
    if not result.quality:
        return notice("No check of the recording left a remark.", "clear")
    checks: dict[tuple[Severity, str], list[Quality]] = {}
    for remark in sorted(result.quality, key=_gravest_first):
        checks.setdefault((remark.severity, remark.check), []).append(remark)
    rows = [
        (
            badge(SEVERITY_LABELS[severity], severity.value),
            name(check),
            _where(remarks),
            sum(remark.count for remark in remarks),
            name(_meaning(remarks), 400),
        )
        for (severity, check), remarks in checks.items()
    ]
    return table(f"Remarks on the recording: {len(rows):,}", COLUMNS, rows)


def _where(remarks: list[Quality]) -> str:
    ranks = [remark.rank for remark in remarks if remark.rank is not None]
    return ranks_text(ranks) if ranks else "all"


def _meaning(remarks: list[Quality]) -> str:
    """What the check says; where ranks differ, of the rank with the most."""
    most = max(remarks, key=lambda remark: remark.count)
    if len({remark.detail for remark in remarks}) == 1:
        return most.detail
    return f"rank {most.rank}, the most: {most.detail}"


def _gravest_first(remark: Quality) -> tuple[int, str, int]:
    return WEIGHT[remark.severity], remark.check, -1 if remark.rank is None else remark.rank
