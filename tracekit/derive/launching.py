"""How a rank launches its kernels: how many, how long they are, and how many come from graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.averages import averaged_spans, begun_inside

if TYPE_CHECKING:
    from tracekit.store import Run


def launching(run: Run) -> pl.DataFrame:
    """Kernels of each rank in the averaged steps.

    Returns:
        `rank`, `n_kernels` (a step), `kernels_per_s`, `median_ns` (duration of a kernel),
        `graph_share` (kernels that a graph launched), `n_launches` and `launch_ns` (launching calls
        a step, and the median time in one), all Float64 but `rank`; by rank. Null where none was
        recorded.
    """
    spans = averaged_spans(run)
    return pl.concat([_of_rank(run, rank, spans.filter(rank=rank)) for rank in run.ranks])


def _of_rank(run: Run, rank: int, spans: pl.DataFrame) -> pl.DataFrame:
    n_steps = max(spans.height, 1)
    seconds = float((spans["end_ns"] - spans["start_ns"]).sum()) / 1e9
    graphs = (
        run.scan("launches", rank)
        .filter(pl.col("role") == "graph-launch")
        .select("correlation", is_graphed=pl.lit(value=True))
        .drop_nulls("correlation")
        .unique("correlation")
    )
    kernels = (
        begun_inside(run.scan("kernels", rank), spans)
        .join(graphs, on="correlation", how="left", validate="m:1")
        .select(
            n_kernels=pl.len() / n_steps,
            kernels_per_s=pl.len() / max(seconds, 1e-9),
            median_ns=pl.col("dur_ns").median(),
            graph_share=pl.col("is_graphed").is_not_null().mean(),
        )
    )
    is_launch = pl.col("role").is_in(["launch", "graph-launch"])
    calls = begun_inside(run.scan("launches", rank).filter(is_launch), spans).select(
        n_launches=pl.len() / n_steps, launch_ns=pl.col("dur_ns").median()
    )
    return (
        pl.concat([kernels, calls], how="horizontal")
        .select(pl.lit(rank, dtype=pl.Int64).alias("rank"), pl.all())
        .collect()
    )
