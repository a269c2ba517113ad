"""Calls that hold the host until the device has worked off what was launched, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.averages import averaged_spans
from tracekit.derive.host_causes import BLOCKING, runtime_calls

if TYPE_CHECKING:
    from tracekit.store import Run


def blocking_calls(run: Run) -> pl.DataFrame:
    """Blocking calls of each rank in each averaged step, by the name of the call.

    Returns:
        `rank`, `step`, `name`, `n_calls`, `blocked_ns` (time inside them); by rank, step and name.
    """
    spans = averaged_spans(run)
    parts = [_of_rank(run, rank, spans.filter(rank=rank)) for rank in run.ranks]
    return pl.concat(parts).sort("rank", "step", "name")


def _of_rank(run: Run, rank: int, spans: pl.DataFrame) -> pl.DataFrame:
    opened = spans.select("rank", "step", at_ns="start_ns", closes_ns="end_ns").sort("at_ns")
    return (
        runtime_calls(run, rank)
        .filter(pl.col("class") == BLOCKING)
        .sort("start_ns")
        .join_asof(opened.lazy(), left_on="start_ns", right_on="at_ns", strategy="backward")
        .filter(pl.col("start_ns") < pl.col("closes_ns"))
        .group_by("rank", "step", "name")
        .agg(
            n_calls=pl.len().cast(pl.Int64),
            blocked_ns=(pl.col("end_ns") - pl.col("start_ns")).sum(),
        )
        .collect()
    )
