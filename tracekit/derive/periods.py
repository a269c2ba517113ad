"""Whether something happens at regular steps: every k-th, or at the first step of each epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.activity import training_thread
from tracekit.derive.host_kinds import INPUT_PIPELINE, class_of
from tracekit.derive.steps import marks, with_step

if TYPE_CHECKING:
    from tracekit.store import Run

MIN_CYCLES = 3
"""Two cycles agree by chance."""
MIN_AGREEING_SHARE = 0.75
MIN_FACTOR = 2.0
"""What comes at every k-th step is larger there than elsewhere by this much, in most cycles."""


def period(series: list[int]) -> int | None:
    """Every how many steps a series of one value a step, none left out, has its peak.

    The series is folded at each k that gives enough cycles. A fold counts if in most cycles the
    peak lies at the same place, and there the mean is at least twice that of all other places; of
    several the sharpest one is taken. Null where none counts.
    """
    folds = [(_sharpness(series, k), -k) for k in range(2, len(series) // MIN_CYCLES + 1)]
    sharpness, k = max(folds, default=(0.0, 0))
    return -k if sharpness >= MIN_FACTOR else None


def _sharpness(series: list[int], k: int) -> float:
    """Mean at the peak's place over the mean elsewhere; 0 where cycles have no common peak."""
    sums = [sum(series[place::k]) / len(series[place::k]) for place in range(k)]
    place = sums.index(max(sums))
    cycles = [series[start : start + k] for start in range(0, len(series) - k + 1, k)]
    n_agreeing = sum(cycle[place] == max(cycle) > 0 for cycle in cycles)
    if n_agreeing < MIN_AGREEING_SHARE * len(cycles):
        return 0.0
    elsewhere = (sum(sums) - sums[place]) / (k - 1)
    return sums[place] / elsewhere if elsewhere else float("inf")


def epoch_starts(run: Run, rank: int) -> list[int]:
    """Steps in which the training thread asked its loader twice, sorted.

    The call that finds an epoch at its end is recorded like those that bring a batch, so the step
    that begins the next epoch holds two.
    """
    thread = training_thread(run, rank)
    calls = run.scan("annotations", rank).filter(
        (pl.col("thread") == pl.lit(thread, dtype=pl.Int64))
        & pl.col("name").str.contains("__next__")
        & (class_of() == INPUT_PIPELINE)
    )
    counts = (
        with_step(calls, marks(run, rank), "start_ns")
        .drop_nulls("step")
        .group_by("step")
        .agg(n_calls=pl.len())
        .collect()
    )
    is_more = pl.col("n_calls") > pl.col("n_calls").min()
    return sorted(counts.filter(is_more)["step"].to_list())
