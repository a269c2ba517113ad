"""What the profiler itself costs the host: time for each operator it records.

Figures are of torch's profiler, each operator's record taken alone: 3.8 µs, 8 µs with shapes or
memory, 12.6 µs with stacks or modules (`docs/decisions.md`). Figures about the host are upper
bounds by that much, and where options were on that more than double it, no saving follows from
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.intervals import covered_ns

if TYPE_CHECKING:
    from tracekit.store import Run

STACKS, SHAPES = ("with_stack", "with_modules"), ("record_shapes", "profile_memory", "with_flops")
PLAIN_NS, SHAPES_NS, STACKS_NS = 3_800, 8_000, 12_600
_QUEUE_FULL = "Command Buffer Full"
"""Recorded as overhead, but the driver's queue holds the host there, not the profiler."""


def costly_options(run: Run) -> tuple[str, ...]:
    """Options of the profiler that more than double its cost, in any capture, sorted."""
    on = {flag for capture in run.manifest.captures for flag in capture.flags}
    return tuple(sorted(on & {*STACKS, *SHAPES}))


def profiler_ns(run: Run, rank: int, parts: pl.DataFrame) -> pl.Series:
    """How much of each part (`start_ns`, `end_ns`) of a rank's host recording may have taken.

    The cost of each operator, spread evenly over it, and the time in which the profiler recorded
    itself at work, flushing its buffers, say; at most the whole part.
    """
    return _profiler_ns(run, rank, parts, n_operators(run, rank, parts))


def _profiler_ns(run: Run, rank: int, parts: pl.DataFrame, n_operators: pl.Series) -> pl.Series:
    cost_ns = (n_operators * operator_ns(run, rank)).cast(pl.Int64)
    own = (
        run.scan("other_events", rank)
        .filter(pl.col("category").str.to_lowercase() == "overhead", pl.col("name") != _QUEUE_FULL)
        .select("start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"), rank=pl.lit(rank))
        .collect()
    )
    own_ns = covered_ns(parts.with_columns(rank=pl.lit(rank)), own, "rank")
    length_ns = parts["end_ns"] - parts["start_ns"]
    return pl.select(pl.min_horizontal(cost_ns + own_ns, length_ns)).to_series()


def n_operators(run: Run, rank: int, parts: pl.DataFrame) -> pl.Series:
    """Operators inside each part (Float64), on any thread: one that lies half in it is a half."""
    operators = (
        run.scan("cpu_ops", rank)
        .select("start_ns", dur_ns=pl.col("dur_ns").clip(1))
        .select(
            "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"), weight=1 / pl.col("dur_ns")
        )
        .collect()
    )

    at = pl.concat([parts["start_ns"], parts["end_ns"]])
    until = _grown(operators, "start_ns", at) - _grown(operators, "end_ns", at)
    return until.slice(parts.height) - until.slice(0, parts.height)


def _grown(operators: pl.DataFrame, edge: str, at: pl.Series) -> pl.Series:
    """Sum of (at − edge) · weight over the operators whose edge lies before `at`.

    Sums of weight and of weight · edge are enough, so one search an instant does.
    """
    sums = operators.sort(edge).select(
        edge,
        weight=pl.col("weight").cum_sum(),
        moment=(pl.col("weight") * pl.col(edge)).cum_sum(),
    )
    place = sums[edge].search_sorted(at, side="right")
    before = pl.concat([pl.Series([0.0]), sums["weight"]]).gather(place)
    moment = pl.concat([pl.Series([0.0]), sums["moment"]]).gather(place)
    return at * before - moment


def operator_ns(run: Run, rank: int) -> int:
    """What recording one operator costs the host under the options of the rank's capture."""
    flags = set(run.capture(rank).flags)
    if flags & set(STACKS):
        return STACKS_NS
    return SHAPES_NS if flags & set(SHAPES) else PLAIN_NS
