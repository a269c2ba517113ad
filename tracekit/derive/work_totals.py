"""Compute of each rank by class of work and step, and which ranks can be compared by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.averages import averages, compared
from tracekit.derive.cached import remembered
from tracekit.derive.kernel_totals import kernel_totals
from tracekit.derive.stages import stages
from tracekit.derive.work_classes import class_at_fault, work_class

if TYPE_CHECKING:
    from collections.abc import Collection

    from tracekit.store import Run


@remembered
def work_totals(run: Run) -> pl.DataFrame:
    """Compute in the averaged steps: `rank`, `stage`, `step`, `class`, `n_kernels`, `total_ns`.

    `stage` is the rank's stage of its pipeline: ranks of one stage have the same layers, and can be
    compared. Durations are sums over kernels. Sorted by all but the last two.
    """
    return (
        compared(run, kernel_totals, averages(run).steps)
        .group_by("rank", "step", work_class().alias("class"))
        .agg(pl.col("n_kernels", "total_ns").sum())
        .collect()
        .join(stages(run).select("rank", "stage"), on="rank", validate="m:1")
        .select("rank", "stage", "step", "class", "n_kernels", "total_ns")
        .sort("rank", "stage", "step", "class")
    )


def class_of_stage(run: Run, ranks: Collection[int]) -> str | None:
    """Attention or experts, where they alone make some ranks longer than those of other stages."""
    by_rank = work_totals(run).group_by("rank", "class").agg(pl.col("total_ns").sum())
    is_own, total_ns = pl.col("rank").is_in(list(ranks)), pl.col("total_ns")
    medians = by_rank.group_by("class").agg(
        own_ns=total_ns.filter(is_own).median(), usual_ns=total_ns.filter(~is_own).median()
    )
    known = medians.drop_nulls()
    return class_at_fault(
        dict(known.select("class", "own_ns").iter_rows()),
        dict(known.select("class", "usual_ns").iter_rows()),
    )


def unevenness(totals: pl.DataFrame) -> pl.DataFrame:
    """How unequal each class of work is over the ranks of a stage, step by step.

    Args:
        totals: rows of `work_totals`.

    Returns:
        `stage`, `step`, `class`, `mean_ns`, `median_ns`, `max_ns`, `worst` (the rank with most),
        `n_ranks`; by stage, step and class. A rank that ran none of a class counts with 0.
    """
    places = totals.select("rank", "stage", "step").unique()
    classes = totals.select("stage", "step", "class").unique()
    every = places.join(classes, on=["stage", "step"])
    each = every.join(
        totals.select("rank", "step", "class", "total_ns"),
        on=["rank", "step", "class"],
        how="left",
        validate="1:1",
    ).with_columns(pl.col("total_ns").fill_null(0))
    return (
        each.sort("total_ns", "rank", descending=[True, False])
        .group_by("stage", "step", "class", maintain_order=True)
        .agg(
            mean_ns=pl.col("total_ns").mean(),
            median_ns=pl.col("total_ns").median(),
            max_ns=pl.col("total_ns").first(),
            worst=pl.col("rank").first(),
            n_ranks=pl.len().cast(pl.Int64),
        )
        .sort("stage", "step", "class")
    )
