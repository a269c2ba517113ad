"""Compute of the ranks: by pipeline and stage where there are pipelines, else one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.reports.components import note, ranks_text
from tracekit.reports.heat_table import Cell, Heat, Row, heat_table
from tracekit.reports.mean_step import faulty_ranks
from tracekit.units import Unit, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from markupsafe import Markup

    from tracekit.results import Result
    from tracekit.waiting import RankWaiting

ORDER = 34
TITLE = "Compute of the ranks"

MAX_PIPELINES, MAX_STAGES = 64, 64
N_A_ROW = 16

SAYS = "computes {value}, waits {1} and makes others wait {2}, in the mean step"
BY_STAGE = (
    "A row is a pipeline, a column a stage of it: a column that stands out is a stage with too "
    "much work, a single cell is a slow rank."
)
BY_RANK = "A cell is a rank: one that stands out computes longer or shorter than the others."


def render(result: Result, /) -> Markup | None:
    """Pipelines by stages, or a strip of ranks; None with fewer than two ranks."""
    if result.waiting is None or len(result.waiting.ranks) < 2:
        return None
    ranks = result.waiting.ranks
    blamed = frozenset(faulty_ranks(result))
    n_stages = 1 + max(each.stage for each in ranks)
    if 1 < n_stages <= MAX_STAGES:
        return _by_stage(ranks, n_stages, blamed)
    return note(BY_RANK + _blamed(blamed)) + heat_table(_strip(ranks, blamed))


def _by_stage(ranks: Sequence[RankWaiting], n_stages: int, blamed: frozenset[int]) -> Markup:
    pipelines: dict[int, dict[int, RankWaiting]] = {}
    for each in ranks:
        pipelines.setdefault(each.pipeline, {})[each.stage] = each
    shown, cut = sorted(pipelines), ""
    if len(shown) > MAX_PIPELINES:
        shown.sort(key=lambda first: _weight(pipelines[first].values()), reverse=True)
        cut = (
            f" Shown: the {MAX_PIPELINES} of {len(shown):,} pipelines that cause the most waiting,"
            " the worst first."
        )
        shown = shown[:MAX_PIPELINES]
    rows = tuple(
        Row(
            head=f"pipeline of rank {first}",
            rank=None,
            cells=tuple(_cell(pipelines[first].get(stage), blamed) for stage in range(n_stages)),
        )
        for first in shown
    )
    heat = _heat(
        ranks,
        rows,
        tuple(f"stage {stage}" for stage in range(n_stages)),
        caption="Compute in the mean step, by pipeline and stage",
        corner="pipeline \u2193 stage \u2192",
        says=f"Rank {{0}}, {{column}}: {SAYS}",
    )
    return note(BY_STAGE + cut + _blamed(blamed)) + heat_table(heat)


def _weight(ranks: Iterable[RankWaiting]) -> tuple[float, float]:
    """What makes a pipeline worth showing: the waiting it causes, then its longest compute."""
    listed = list(ranks)
    return sum(each.caused_ns for each in listed), max(each.compute_ns for each in listed)


def _strip(ranks: Sequence[RankWaiting], blamed: frozenset[int]) -> Heat:
    n_columns = min(N_A_ROW, len(ranks))
    rows = []
    for at in range(0, len(ranks), n_columns):
        here = ranks[at : at + n_columns]
        cells = tuple(_cell(each, blamed) for each in here)
        head = f"ranks {ranks_text(each.rank for each in here)}"
        rows.append(Row(head, None, cells + (None,) * (n_columns - len(here))))
    return _heat(
        ranks,
        tuple(rows),
        tuple(f"+{i}" for i in range(n_columns)),
        caption="Compute in the mean step, by rank",
        corner="ranks",
        says=f"Rank {{0}}: {SAYS}",
    )


def _cell(each: RankWaiting | None, blamed: frozenset[int]) -> Cell | None:
    if each is None:
        return None
    also = (str(each.rank), text(each.waiting_ns, Unit.NS), text(each.caused_ns, Unit.NS))
    return Cell(each.compute_ns, also, is_marked=each.rank in blamed)


def _heat(
    ranks: Sequence[RankWaiting],
    rows: tuple[Row, ...],
    columns: tuple[str, ...],
    *,
    caption: str,
    corner: str,
    says: str,
) -> Heat:
    compute_ns = [each.compute_ns for each in ranks]
    return Heat(
        caption=caption,
        corner=corner,
        columns=columns,
        rows=rows,
        says=says,
        blank="no rank here",
        low=min(compute_ns),
        # A spread below 10 % is noise: it must not fill the whole scale.
        high=max(*compute_ns, 1.1 * min(compute_ns)),
    )


def _blamed(blamed: frozenset[int]) -> str:
    return f" Marked \u25c0: ranks at fault ({ranks_text(blamed)})." if blamed else ""
