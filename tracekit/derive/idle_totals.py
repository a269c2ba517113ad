"""Idle time of each rank by cause, over the averaged steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.averages import averages, compared
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
    return (
        compared(run, idle, averages(run).steps)
        .sort("dur_ns", descending=True)
        .group_by("rank", named, maintain_order=True)
        .agg(pl.col("dur_ns").sum(), pl.col("detail").first())
        .select("rank", "cause", "detail", "dur_ns")
        .sort("rank", "dur_ns", "cause", descending=[False, True, False])
        .collect()
    )
