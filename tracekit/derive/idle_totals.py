"""Idle time of each rank by cause, over the averaged steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.averages import averages, compared_devices
from tracekit.derive.cached import remembered
from tracekit.derive.host_kinds import host_class
from tracekit.derive.idle import idle

if TYPE_CHECKING:
    from tracekit.store import Run


@remembered
def idle_by_cause(run: Run, *, by_host_class: bool = False) -> pl.DataFrame:
    """Idle time of each rank by cause in its averaged steps: `rank`, `cause`, `detail`, `dur_ns`.

    Devices that the averages leave out are left out here. `by_host_class` tells kinds of host work
    apart (`host_class`).

    `detail` is the host call in which the longest idle part of that cause fell. Sorted by rank,
    longest first.
    """
    named = (host_class() if by_host_class else pl.col("cause")).alias("cause")
    steps, devices = averages(run).steps, compared_devices(run)
    return (
        pl.concat(
            [
                idle(run, rank)
                .filter(pl.col("step").is_in(list(steps)) & pl.col("device").is_in(devices[rank]))
                .sort("dur_ns", descending=True)
                .group_by(named, maintain_order=True)
                .agg(pl.col("dur_ns").sum(), pl.col("detail").first())
                .select(pl.lit(rank, dtype=pl.Int64).alias("rank"), "cause", "detail", "dur_ns")
                for rank in run.ranks
            ]
        )
        .sort("rank", "dur_ns", "cause", descending=[False, True, False])
        .collect()
    )
