"""Why a rank was late: its mean step against the median peer's, part by part.

The late rank's extra time is where its step differs from its peers': the same kernels slower, more
kernels, copies, or its device idle for a cause on the host. The peers' extra time is the waiting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.averages import averages, breakdowns, mean_steps
from tracekit.derive.idle import idle
from tracekit.derive.kernel_totals import differences
from tracekit.findings import Cause

if TYPE_CHECKING:
    from tracekit.store import Run

_CAUSES = {
    "same kernels slower": Cause.SLOW_DEVICE,
    "more kernels": Cause.DATA_IMBALANCE,
    "copies": Cause.COPY_IN_OUT,
    "host-sync": Cause.HOST_SYNC,
    "input-pipeline": Cause.INPUT_PIPELINE,
    "allocator": Cause.ALLOCATOR,
    "compilation": Cause.COMPILATION,
    "checkpoint": Cause.CHECKPOINT,
    "cpu-optimizer": Cause.CPU_OPTIMIZER,
    "garbage-collection": Cause.GARBAGE_COLLECTION,
    "launch-overhead": Cause.LAUNCH_OVERHEAD,
    "host-other": Cause.HOST_OTHER,
}


def cause_of(part: str) -> Cause:
    """Cause of a part of a step or of idle time; unknown where the trace cannot tell."""
    return _CAUSES.get(part, Cause.UNKNOWN)


def cause_of_lateness(part: str) -> Cause:
    """Cause of a rank's lateness: one that launches more slowly than its peers has a slow host."""
    return Cause.SLOW_HOST if part == "launch-overhead" else cause_of(part)


def differences_from_peers(run: Run) -> pl.DataFrame:
    """Each rank's mean step against the median of the others, in ns a step.

    Returns:
        `rank`, `part` (same kernels slower, more kernels, copies, or a cause of idle time),
        `own_ns`, `peer_ns`, `extra_ns` (own − peer), all Float64; sorted by rank, then extra first.
    """
    rows = breakdowns(run)
    steps = averages(run, rows).steps
    kernels = differences(run, steps)
    n_steps = max(len(steps), 1)
    copies = mean_steps(rows).group_by("rank").agg(own_ns=pl.col("exposed_copy_ns").sum())
    parts = [
        kernels.select("rank", pl.lit("same kernels slower").alias("part"), own_ns="slower_ns"),
        kernels.select("rank", pl.lit("more kernels").alias("part"), own_ns="more_ns"),
        copies.select("rank", pl.lit("copies").alias("part"), "own_ns"),
        idle_by_cause(run, steps).select("rank", part="cause", own_ns=pl.col("dur_ns") / n_steps),
    ]
    table = pl.concat(parts)
    grid = (
        table.select("part")
        .unique()
        .join(pl.DataFrame({"rank": list(run.ranks)}), how="cross")
        .join(table, on=["rank", "part"], how="left")
        .with_columns(pl.col("own_ns").fill_null(0.0))
    )
    others = (
        grid.join(grid, on="part", suffix="_other")
        .filter(pl.col("rank") != pl.col("rank_other"))
        .group_by("rank", "part")
        .agg(peer_ns=pl.col("own_ns_other").median())
    )
    return (
        grid.join(others, on=["rank", "part"], how="left", validate="1:1")
        .with_columns(pl.col("peer_ns").fill_null(0.0))
        .with_columns(extra_ns=pl.col("own_ns") - pl.col("peer_ns"))
        .select("rank", "part", "own_ns", "peer_ns", "extra_ns")
        .sort("rank", "extra_ns", "part", descending=[False, True, False])
    )


def idle_by_cause(run: Run, steps: tuple[int, ...]) -> pl.DataFrame:
    """Idle time of each rank by cause in the given steps: `rank`, `cause`, `detail`, `dur_ns` (sum).

    `detail` is the host call in which the longest idle part of that cause fell. Sorted by rank,
    longest first.
    """
    return (
        pl.concat(
            [
                idle(run, rank)
                .filter(pl.col("step").is_in(list(steps)))
                .sort("dur_ns", descending=True)
                .group_by("cause", maintain_order=True)
                .agg(pl.col("dur_ns").sum(), pl.col("detail").first())
                .select(pl.lit(rank, dtype=pl.Int64).alias("rank"), "cause", "detail", "dur_ns")
                for rank in run.ranks
            ]
        )
        .sort("rank", "dur_ns", "cause", descending=[False, True, False])
        .collect()
    )
