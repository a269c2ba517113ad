"""What the training loop told of its batches: the lengths of their samples, by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.cached import remembered

if TYPE_CHECKING:
    from tracekit.store import Run


@remembered
def squared_lengths(run: Run) -> pl.DataFrame:
    """Sum of the squared lengths of the samples of each step: `rank`, `step`, `told` (Float64).

    No operator's time grows faster than with the square of a sample's length. Empty unless all
    ranks told.
    """
    rows = [
        run.scan("samples", rank)
        .group_by("step")
        .agg(told=(pl.col("length") ** 2).sum().cast(pl.Float64))
        .select(pl.lit(rank, dtype=pl.Int64).alias("rank"), "step", "told")
        for rank in run.ranks
    ]
    found = pl.concat(rows).sort("rank", "step").collect()
    return found if found["rank"].n_unique() == len(run.ranks) else found.clear()
