"""Calls that hold the host until the device has worked off what was launched, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.averages import averaged_spans, begun_inside
from tracekit.derive.host_causes import BLOCKING, runtime_calls

if TYPE_CHECKING:
    from tracekit.store import Run

SMALL_BYTES = 4096
"""A copy of this size brings the host a size, a flag or a loss, and no data."""


def blocking_calls(run: Run) -> pl.DataFrame:
    """Blocking calls of each rank in each averaged step, by the name of the call.

    Returns:
        `rank`, `step`, `name`, `n_calls`, `blocked_ns` (time inside them); by rank, step and name.
    """
    spans = averaged_spans(run)
    parts = [
        begun_inside(
            runtime_calls(run, rank).filter(pl.col("class") == BLOCKING), spans.filter(rank=rank)
        )
        .group_by("step", "name")
        .agg(
            n_calls=pl.len().cast(pl.Int64),
            blocked_ns=(pl.col("end_ns") - pl.col("start_ns")).sum(),
        )
        .select(pl.lit(rank, dtype=pl.Int64).alias("rank"), pl.all())
        for rank in run.ranks
    ]
    return pl.concat(parts).sort("rank", "step", "name").collect()


def n_small_reads(run: Run) -> float:
    """Copies of at most `SMALL_BYTES` from the device to the host, mean rank and averaged step."""
    spans = averaged_spans(run)
    is_read = (pl.col("kind") == "DtoH") & (pl.col("size_bytes") <= SMALL_BYTES)
    counts = [
        begun_inside(run.scan("copies", rank).filter(is_read), spans.filter(rank=rank)).select(
            pl.len()
        )
        for rank in run.ranks
    ]
    n_reads = pl.concat(counts).collect()["len"].sum()
    return float(n_reads) / max(spans.height, 1)
