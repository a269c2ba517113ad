"""Which steps enter the averages, and the mean step of each rank and device.

Complete windows other than the capture's first, when at least two remain on every device; else all
complete ones; else the cut one. Steps that every rank has whole are used, so that ranks compare.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.breakdown import BREAKDOWN, PARTS, SPLITS, breakdown
from tracekit.derive.cached import cached
from tracekit.derive.steps import PATTERN, WHOLE
from tracekit.errors import UsageError
from tracekit.schema.table import I64, Column, Table

if TYPE_CHECKING:
    from tracekit.store import Run

MIN_STEPS = 2
MEASURES = ("dur_ns", *PARTS, *SPLITS, "compute_ns", "communication_ns")


BREAKDOWNS = Table(
    "breakdowns",
    "step and device of any rank",
    (Column("rank", I64, "", "rank"), *BREAKDOWN.columns),
)


@dataclass(frozen=True, slots=True)
class Averages:
    """The steps averaged over, in words, and whether ranks can be compared by them."""

    steps: tuple[int, ...]
    why: str
    is_comparable: bool


def breakdowns(run: Run) -> pl.DataFrame:
    """The breakdown of all ranks with a leading `rank` and `is_averaged`, sorted by rank, device, start."""
    rows = cached(run, BREAKDOWNS, lambda: _all_ranks(run)).collect()
    steps = averages(run, rows).steps
    return rows.with_columns(
        is_averaged=pl.col("step").is_in(list(steps)) & pl.col("step").is_not_null()
    )


def _all_ranks(run: Run) -> pl.DataFrame:
    return pl.concat(
        [
            breakdown(run, rank).select(pl.lit(rank, dtype=pl.Int64).alias("rank"), pl.all())
            for rank in run.ranks
        ]
    ).collect()


def averages(run: Run, rows: pl.DataFrame) -> Averages:
    """Choose the steps to average over from the breakdown of all ranks, within `run.steps`.

    Raises:
        UsageError: no step lies within `run.steps`.
    """
    steps = rows.drop_nulls("step")
    if run.steps is not None and steps.height:
        first, end = run.steps
        within = steps.filter(pl.col("step").is_between(first, end, closed="left"))
        if within.is_empty():
            there = f"{steps['step'].min()} to {steps['step'].max()}"
            raise UsageError(
                f"no step in {first}:{end}",
                hint=f"The trace numbers its steps {there}; A:B leaves B out.",
            )
        steps = within
    if steps.is_empty():
        return Averages((), "no device activity", is_comparable=False)
    for where, why in (
        (pl.col("is_complete") & ~pl.col("is_first"), "whole steps other than the first"),
        (pl.col("is_complete"), "all whole steps: too few to leave the first out"),
    ):
        shared = _shared(steps.filter(where), steps)
        if len(shared) >= (MIN_STEPS if "first" in why and "other" in why else 1):
            return Averages(shared, why, is_comparable=True)
    shared = _shared(steps, steps)
    is_marked = not steps["source"].is_in([WHOLE, PATTERN]).any()
    if shared and is_marked:
        return Averages(shared, "cut steps: no whole one is in every rank", is_comparable=True)
    if shared and steps["source"].eq(WHOLE).all():
        why = "no steps found: the whole trace, in which ranks may hold different work"
        return Averages(shared, why, is_comparable=False)
    return Averages(
        tuple(sorted(steps["step"].unique().to_list())),
        "all steps found: ranks have none in common",
        is_comparable=False,
    )


def mean_steps(rows: pl.DataFrame) -> pl.DataFrame:
    """Mean of each measure (Float64, ns) over the averaged steps, by rank and device, sorted."""
    return (
        rows.filter("is_averaged")
        .group_by("rank", "device")
        .agg(pl.col(MEASURES).mean(), n_steps=pl.len().cast(pl.Int64))
        .sort("rank", "device")
    )


def _shared(wanted: pl.DataFrame, everything: pl.DataFrame) -> tuple[int, ...]:
    """Steps that every rank and device of `everything` has among `wanted`."""
    places = everything.select("rank", "device").unique().height
    counts = wanted.group_by("step").agg(pl.struct("rank", "device").n_unique().alias("n"))
    return tuple(sorted(counts.filter(pl.col("n") == places)["step"].to_list()))


__all__ = ["MEASURES", "Averages", "averages", "breakdowns", "mean_steps"]
