"""Published inefficiencies: systems that were built against one, and whether it was found here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Column
from tracekit.reports.components import name, table

if TYPE_CHECKING:
    from markupsafe import Markup

    from tracekit.results import Result

ORDER = 65
TITLE = "Published inefficiencies looked for"


def render(result: Result, /) -> Markup | None:
    """A row per published system, with what its detector found; None when none was looked for."""
    if not result.inefficiencies:
        return None
    columns = (Column("System"), Column("Paper"), Column("Detector"), Column("Result"))
    rows = [
        (name(each.system), name(f"arXiv {each.arxiv}"), name(each.finding), name(each.state))
        for each in result.inefficiencies
    ]
    return table(f"Published inefficiencies: {len(rows):,}", columns, rows)
