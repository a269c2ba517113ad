"""Who waits for whom: the exposed waiting that each late rank causes at each other rank."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tracekit.reports.components import counted, note
from tracekit.reports.heat_table import Cell, Heat, Row, heat_table
from tracekit.units import Unit, text

if TYPE_CHECKING:
    from markupsafe import Markup

    from tracekit.results import Result
    from tracekit.waiting import WaitedFor, Waiting

ORDER = 31
TITLE = "Who waits for whom"

MAX_LINES = 64
"""Rows, and columns: more ranks that wait share columns, so that none of their waiting is lost."""

HOW_TO_READ = (
    "A row is a rank that comes late to collectives, a column one that waits there with nothing "
    "else to do. Look at the rank of the first row; where all rows are alike, ranks take turns."
)


def render(result: Result, /) -> Markup | None:
    """The matrix, culprits by what they cause; None where nobody waited for anybody."""
    if result.waiting is None or not result.waiting.matrix:
        return None
    caused_ns: defaultdict[int, float] = defaultdict(float)
    for pair in result.waiting.matrix:
        caused_ns[pair.culprit] += pair.per_step_ns
    culprits = sorted(caused_ns, key=lambda rank: (-caused_ns[rank], rank))
    shown = {rank: caused_ns[rank] for rank in culprits[:MAX_LINES]}
    n_together = _ranks_a_column(result.waiting.matrix)
    cut = ""
    if len(culprits) > len(shown):
        cut = f" Rows: the {len(shown)} worst of {len(culprits):,} culprits."
    if n_together > 1:
        cut += f" Columns: the waiting of {n_together} ranks each, added up."
    return (
        note(f"{HOW_TO_READ}{cut}")
        + note(_shown(shown, result.waiting))
        + heat_table(_heat(result.waiting.matrix, shown, n_together))
    )


def _ranks_a_column(matrix: tuple[WaitedFor, ...]) -> int:
    victims = {pair.victim for pair in matrix}
    return 1 if len(victims) <= MAX_LINES else -(-(max(victims) + 1) // MAX_LINES)


def _heat(matrix: tuple[WaitedFor, ...], shown: dict[int, float], n_together: int) -> Heat:
    waited_ns: defaultdict[tuple[int, int], float] = defaultdict(float)
    for pair in matrix:
        if pair.culprit in shown:
            waited_ns[pair.culprit, pair.victim // n_together] += pair.per_step_ns
    columns = sorted({column for _, column in waited_ns})
    together, ranks = (", added up", "ranks") if n_together > 1 else ("", "rank")
    return Heat(
        caption=f"Exposed waiting a step: {counted(len(shown), 'culprit')} and their victims",
        corner="culprit \u2193 victim \u2192",
        aside="caused a step",
        columns=tuple(_span(column, n_together) for column in columns),
        rows=tuple(
            Row(
                head=f"rank {culprit}",
                rank=culprit,
                aside=text(total_ns, Unit.NS),
                cells=tuple(
                    Cell(waited_ns[culprit, column]) if (culprit, column) in waited_ns else None
                    for column in columns
                ),
            )
            for culprit, total_ns in shown.items()
        ),
        says=f"{{row}} made {ranks} {{column}} wait {{value}} a step{together}",
        blank=f"{{row}} and {ranks} {{column}}: no waiting",
        low=0.0,
        high=max(waited_ns.values()),
    )


def _span(column: int, n_together: int) -> str:
    first = column * n_together
    return str(first) if n_together == 1 else f"{first}\u2013{first + n_together - 1}"


def _shown(shown: dict[int, float], waiting: Waiting) -> str:
    """How much of all waiting the matrix holds."""
    total_ns, shown_ns = waiting.total_per_step_ns, sum(shown.values())
    total = f"{text(total_ns, Unit.NS)} of exposed waiting a step, added up over all pairs of ranks"
    share = text(min(1.0, shown_ns / total_ns), Unit.SHARE) if total_ns > 0 else ""
    if share in ("", "100.0 %"):
        return f"Shown: all of the {total}."
    return f"Shown: {text(shown_ns, Unit.NS)} ({share}) of the {total}."
