"""How much a host had to do in each step: operators to run and record, kernels to launch, reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.cached import cached
from tracekit.derive.profiler_cost import n_operators, profiler_ns
from tracekit.derive.steps import begun_inside, spans
from tracekit.schema.table import F64, I64, Column, Table

if TYPE_CHECKING:
    from tracekit.store import Run

SMALL_BYTES = 4096
"""A copy of this size brings the host a size, a flag or a loss, and no data."""
HOST_WORK = Table(
    "host_work",
    "step of one rank, over its devices",
    (
        Column("step", I64, "", "number of the step"),
        Column("dur_ns", I64, "ns", "from its first window's start to its last window's end"),
        Column("n_operators", F64, "", "host operators; one that lies half in it is a half"),
        Column("profiler_ns", I64, "ns", "what recording may have cost the host"),
        Column("n_kernels", I64, "", "kernels that began"),
        Column("n_graph_kernels", I64, "", "of them, launched by graphs"),
        Column("median_kernel_ns", F64, "ns", "median duration of a kernel; null without any"),
        Column("n_launches", I64, "", "launching calls, of kernels and graphs"),
        Column("median_launch_ns", F64, "ns", "median time in one; null without any"),
        Column("n_small_reads", I64, "", "copies of at most 4 KiB from the device to the host"),
    ),
)


def host_work(run: Run, rank: int) -> pl.LazyFrame:
    """The host's work in each step of one rank (`HOST_WORK`), by start."""
    return cached(run, HOST_WORK, lambda: _host_work(run, rank), rank)


def _host_work(run: Run, rank: int) -> pl.DataFrame:
    steps = spans(run, rank).collect()
    parts = steps.select(start_ns="opens_ns", end_ns="closes_ns")
    is_launch = pl.col("role").is_in(["launch", "graph-launch"])
    is_read = (pl.col("kind") == "DtoH") & (pl.col("size_bytes") <= SMALL_BYTES)
    launches = run.scan("launches", rank)
    graphs = launches.filter(pl.col("role") == "graph-launch").select("correlation").drop_nulls()
    is_graphed = pl.col("correlation").is_in(graphs.collect()["correlation"].unique().to_list())
    counted = (
        begun_inside(run.scan("kernels", rank), steps.lazy())
        .group_by("step")
        .agg(
            n_kernels=pl.len().cast(pl.Int64),
            n_graph_kernels=is_graphed.sum().cast(pl.Int64),
            median_kernel_ns=pl.col("dur_ns").median(),
        ),
        begun_inside(launches.filter(is_launch), steps.lazy())
        .group_by("step")
        .agg(n_launches=pl.len().cast(pl.Int64), median_launch_ns=pl.col("dur_ns").median()),
        begun_inside(run.scan("copies", rank).filter(is_read), steps.lazy())
        .group_by("step")
        .agg(n_small_reads=pl.len().cast(pl.Int64)),
    )
    rows = steps.lazy().with_columns(
        dur_ns=pl.col("closes_ns") - pl.col("opens_ns"),
        n_operators=n_operators(run, rank, parts),
        profiler_ns=profiler_ns(run, rank, parts),
    )
    for part in counted:
        rows = rows.join(part, on="step", how="left", validate="1:1")
    is_count = ["n_kernels", "n_graph_kernels", "n_launches", "n_small_reads"]
    return (
        rows.with_columns(pl.col(is_count).fill_null(0))
        .sort("opens_ns", "step")
        .select(list(HOST_WORK.schema))
        .collect()
    )
