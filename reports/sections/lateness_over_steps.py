"""Lateness over the steps: whether a rank is late always, more and more, or now and then."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

from tracekit.reports.components import counted, note
from tracekit.reports.heat_table import Cell, Heat, Row, heat_table
from tracekit.units import Unit, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup

    from tracekit.results import Result

ORDER = 33
TITLE = "Lateness over the steps"

MAX_RANKS = 64
MAX_STEPS = 128

HOW_TO_READ = (
    "A row is a rank, a column a step: a row coloured throughout is late for a reason that stays, "
    "as a slow device does; single cells are pauses, and a row that grows brighter gets worse."
)


def render(result: Result, /) -> Markup | None:
    """The latest rank first, with its course in words; None where no rank was late."""
    if result.waiting is None or not result.waiting.by_step:
        return None
    late_ns: defaultdict[int, dict[int, float]] = defaultdict(dict)
    for each in result.waiting.by_step:
        late_ns[each.rank][each.step] = each.late_ns
    ranks = sorted(late_ns, key=lambda rank: (-sum(late_ns[rank].values()), rank))[:MAX_RANKS]
    all_steps = sorted({*result.run.averaged_steps, *(s for by in late_ns.values() for s in by)})
    steps = _busiest([(step, sum(late_ns[r].get(step, 0.0) for r in ranks)) for step in all_steps])
    cut = ""
    if len(ranks) < len(late_ns):
        cut = f" Shown: the {len(ranks)} latest of {counted(len(late_ns), 'rank')}."
    if len(steps) < len(all_steps):
        cut += f" Shown: steps {steps[0]} to {steps[-1]}, the latest {len(steps)} in a row."
    courses = {each.rank: each.course for each in result.waiting.ranks}
    rows = tuple(
        _row(
            rank,
            late_ns[rank],
            steps,
            _words(courses.get(rank, ""), [late_ns[rank].get(step, 0.0) for step in all_steps]),
        )
        for rank in ranks
    )
    heat = Heat(
        caption="Lateness a step, summed over its collectives",
        corner="rank \u2193 step \u2192",
        aside="course",
        columns=tuple(str(step) for step in steps),
        rows=rows,
        says="{row} was late by {value} in step {column}",
        blank="{row} was not late in step {column}",
        low=0.0,
        high=max(ns for rank in ranks for ns in late_ns[rank].values()),
    )
    return note(HOW_TO_READ + cut) + heat_table(heat)


def _row(rank: int, late_ns: dict[int, float], steps: Sequence[int], course: str) -> Row:
    cells = tuple(Cell(late_ns[step]) if late_ns.get(step) else None for step in steps)
    return Row(f"rank {rank}", rank, cells, aside=course)


def _busiest(lateness_ns: Sequence[tuple[int, float]]) -> list[int]:
    """The `MAX_STEPS` consecutive steps that hold the most lateness, or all."""
    n_first = max(0, len(lateness_ns) - MAX_STEPS) + 1
    start = max(
        range(n_first), key=lambda at: (sum(ns for _, ns in lateness_ns[at : at + MAX_STEPS]), -at)
    )
    return [step for step, _ in lateness_ns[start : start + MAX_STEPS]]


def _words(course: str, series_ns: Sequence[float]) -> str:
    """How a rank's lateness goes over the steps, in words a reader needs no glossary for."""
    happened = sorted(ns for ns in series_ns if ns > 0)
    large_ns = happened[len(happened) // 2] / 2 if happened else 0.0
    at = [i for i, ns in enumerate(series_ns) if ns > large_ns]
    often = f"in {len(at)} of {counted(len(series_ns), 'step')}"
    match course:
        case "fixed":
            return "in every step" if len(at) == len(series_ns) else often
        case "trending":
            first, last = (text(series_ns[i], Unit.NS) for i in (0, -1))
            return f"grows: {first} in the first step, {last} in the last"
        case "periodic":
            apart = {after - before for before, after in pairwise(at)}
            return f"every {min(apart)} steps" if len(apart) == 1 else f"at intervals, {often}"
        case "":
            return often
        case _:
            return f"{course}, {often}"
