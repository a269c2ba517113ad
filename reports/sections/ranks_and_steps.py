"""Ranks and steps: where in the run the time goes, as a heat map that can be switched."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from markupsafe import Markup

from tracekit.findings import Column
from tracekit.reports.charts import VIEWS, heat_map, kept_steps, view_buttons
from tracekit.reports.components import counted, note, ranks_text, table
from tracekit.reports.mean_step import MAX_ROWS, faulty_ranks
from tracekit.units import Unit

if TYPE_CHECKING:
    from tracekit.findings import Cell
    from tracekit.results import Parts, Result

ORDER = 20
TITLE = "Ranks and steps"

COLUMNS = (
    Column("Step"),
    Column("Ranks", Unit.COUNT),
    Column("In the average"),
    Column("Mean", Unit.NS),
    Column("Shortest", Unit.NS),
    Column("Longest", Unit.NS),
    Column("Longest own time", Unit.NS),
    Column("on rank"),
)


def render(result: Result, /) -> Markup | None:
    """Heat map, what it leaves out, and a table per step; None without steps."""
    steps: defaultdict[int, list[Parts]] = defaultdict(list)
    for parts in result.breakdown:
        if parts.step is not None:
            steps[parts.step].append(parts)
    if not steps:
        return None
    label = f"Heat map of {len(result.run.ranks)} ranks and {len(steps)} steps: {VIEWS[0].label}"
    return (
        view_buttons()
        + heat_map(label)
        + _notes(result, n_steps=len(steps))
        + _step_table({step: steps[step] for step in sorted(steps)})
    )


def _notes(result: Result, n_steps: int) -> Markup:
    """What the heat map marks, leaves out, and which steps enter the averages."""
    sentences = []
    blamed = faulty_ranks(result)
    if blamed:
        sentences.append(f"Outlined or marked ◀: ranks at fault ({ranks_text(blamed)}).")
    n_kept = len(kept_steps(result))
    if n_kept < n_steps:
        sentences.append(f"Shown: the {n_kept} slowest of {counted(n_steps, 'step')}.")
    left_out = sorted(set(result.run.steps) - set(result.run.averaged_steps))
    if left_out:
        sentences.append(
            f"Marked *: left out of the averages ({ranks_text(left_out)}). "
            f"Averaged: {result.run.averaged_why}"
        )
    return note(" ".join(sentences)) if sentences else Markup("")


def _step_table(steps: dict[int, list[Parts]]) -> Markup:
    rows = [_step_row(step, parts) for step, parts in steps.items()]
    caption = "Step time over ranks"
    if len(rows) > MAX_ROWS:
        rows = sorted(sorted(rows, key=lambda row: -float(row[3] or 0))[:MAX_ROWS])
        caption = f"Step time over ranks: the {MAX_ROWS} slowest of {len(steps):,} steps"
    return Markup("<details><summary>Steps as a table</summary>{}</details>").format(
        table(caption, COLUMNS, rows)
    )


def _step_row(step: int, parts: list[Parts]) -> tuple[Cell, ...]:
    durations_ns = [row.dur_ns for row in parts]
    slowest = max(parts, key=_own_ns)
    return (
        step,
        len({row.rank for row in parts}),
        any(row.is_averaged for row in parts),
        sum(durations_ns) / len(durations_ns),
        min(durations_ns),
        max(durations_ns),
        _own_ns(slowest),
        slowest.rank,
    )


def _own_ns(parts: Parts) -> int:
    return parts.dur_ns - parts.exposed_waiting_ns
