"""Calls that hold the host until the device has worked off what was launched, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.cached import cached
from tracekit.derive.host_causes import BLOCKING, runtime_calls
from tracekit.derive.steps import begun_inside, spans
from tracekit.schema.table import I64, NAME, Column, Table

if TYPE_CHECKING:
    from tracekit.store import Run

BLOCKING_CALLS = Table(
    "blocking_calls",
    "kind of blocking call in a step of one rank",
    (
        Column("step", I64, "", "number of the step"),
        NAME,
        Column("n_calls", I64, "", "how many"),
        Column("blocked_ns", I64, "ns", "time inside them"),
    ),
)


def blocking_calls(run: Run, rank: int) -> pl.LazyFrame:
    """Blocking calls of one rank (`BLOCKING_CALLS`), by step and name."""
    return cached(run, BLOCKING_CALLS, lambda: _blocking_calls(run, rank), rank)


def _blocking_calls(run: Run, rank: int) -> pl.DataFrame:
    calls = runtime_calls(run, rank).filter(pl.col("class") == BLOCKING)
    return (
        begun_inside(calls, spans(run, rank))
        .group_by("step", "name")
        .agg(
            n_calls=pl.len().cast(pl.Int64),
            blocked_ns=(pl.col("end_ns") - pl.col("start_ns")).sum(),
        )
        .sort("step", "name")
        .collect()
    )
