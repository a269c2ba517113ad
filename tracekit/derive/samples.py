"""What the training loop told of its batches: the lengths of their samples, by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.cached import remembered

if TYPE_CHECKING:
    from collections.abc import Collection

    from tracekit.store import Run


@remembered
def squared_lengths(run: Run) -> pl.DataFrame:
    """Sum of the squared lengths of the samples of each step: `rank`, `step`, `told` (Float64).

    No operator's time grows faster than with the square of a sample's length. Empty unless all
    ranks told.
    """
    found = (
        run.scan_all("samples")
        .group_by("rank", "step")
        .agg(told=(pl.col("length") ** 2).sum().cast(pl.Float64))
        .sort("rank", "step")
        .collect()
    )
    return found if found["rank"].n_unique() == len(run.ranks) else found.clear()


def longer_share(run: Run, ranks: Collection[int], steps: Collection[int]) -> float:
    """How much more the squared lengths of some ranks sum to than those of the median rank.

    Of the rank with most, as a share; 0 where the loop did not tell.
    """
    told = squared_lengths(run).filter(pl.col("step").is_in(list(steps)))
    sums = told.group_by("rank").agg(pl.col("told").sum())
    own = sums.filter(pl.col("rank").is_in(list(ranks)))["told"].to_list()
    usual = sums.select(pl.col("told").median()).to_series().to_list()[0]
    return max(own) / usual - 1 if own and usual else 0.0
