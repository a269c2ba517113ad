"""Which steps of a job are replayed: all of a short recording, the first ones of a long one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.averages import breakdowns

if TYPE_CHECKING:
    from tracekit.store import Run

MAX_PER_RANK, MAX_IN_ALL, MIN_STEPS = 60_000, 500_000, 2
"""Device events of a rank, and of all, that are replayed, and averaged steps that are at least.

A graph takes 3 to 4 kB an event, so that half a million fit into 2 GB.
"""


def replayed_windows(run: Run) -> pl.DataFrame:
    """Windows of all steps, up to as many averaged ones as a graph can hold.

    Columns: rank, device, step, start_ns, dur_ns, end_ns, is_complete, is_averaged. At least two
    averaged steps are kept, where there are two. Times are compared within a rank only: clocks of
    ranks may differ by more than a step.
    """
    windows = (
        breakdowns(run)
        .drop_nulls("step")
        .select("rank", "device", "step", "start_ns", "dur_ns", "is_complete", "is_averaged")
        .with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    )
    in_all = max(1, run.n_rows("kernels") + run.n_rows("copies"))
    until_ns = pl.col("end_ns") - pl.col("start_ns").min().over("rank")  # since the rank began
    share = min(MAX_PER_RANK * len(run.ranks), MAX_IN_ALL) / in_all
    steps = (
        windows.with_columns(until_share=until_ns / until_ns.max())
        .filter("is_averaged")
        .group_by("step")
        .agg(pl.col("until_share").max())
        .sort("until_share")
    )
    n_early = steps.filter(pl.col("until_share") <= share).height
    if share >= 1 or steps.height <= MIN_STEPS:
        return windows
    kept = pl.col("step").is_in(steps["step"].head(max(MIN_STEPS, n_early)).implode())
    last_ns = pl.col("end_ns").filter(kept).max().over("rank")
    return windows.filter(pl.col("end_ns") <= last_ns).with_columns(
        is_averaged=pl.col("is_averaged") & kept
    )
