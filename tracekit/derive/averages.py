"""Which steps enter the averages, and the mean step of each rank and device.

Complete windows other than the capture's first, when at least two remain; else all complete ones;
else the cut one. Only steps that every rank has are used, so that ranks compare: a rank without
step marks among ranks with marks, and a device that hardly ran, are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.breakdown import BREAKDOWN, PARTS, SPLITS, breakdown
from tracekit.derive.cached import cached, remembered
from tracekit.derive.steps import PATTERN, WHOLE
from tracekit.errors import UsageError
from tracekit.schema.table import I64, Column, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tracekit.store import Run

MIN_STEPS = 2
MIN_DEVICE_SHARE = 0.02
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


@remembered
def breakdowns(run: Run) -> pl.DataFrame:
    """The breakdown of all ranks with `rank` and `is_averaged`, sorted by rank, device, start."""
    rows = _rows(run)
    steps = averages(run).steps
    return (
        rows.join(
            _compared(run).with_columns(is_compared=pl.lit(value=True)),
            on=["rank", "device"],
            how="left",
            validate="m:1",
            maintain_order="left",
        )
        .with_columns(
            is_averaged=pl.col("is_compared").fill_null(value=False)
            & pl.col("step").is_in(list(steps)).fill_null(value=False)
        )
        .drop("is_compared")
    )


@remembered
def _rows(run: Run) -> pl.DataFrame:
    return cached(run, BREAKDOWNS, lambda: _all_ranks(run)).collect()


def _all_ranks(run: Run) -> pl.DataFrame:
    return of_ranks(run, breakdown).collect()


@remembered
def averages(run: Run) -> Averages:
    """Choose the steps to average over from the breakdown of all ranks, within `run.steps`.

    Raises:
        UsageError: no step lies within `run.steps`.
    """
    steps = _within(run.steps, _rows(run).drop_nulls("step"))
    if steps.is_empty():
        return Averages((), "no device activity", is_comparable=False)
    places = _compared(run)
    steps = steps.join(places, on=["rank", "device"], how="semi")
    chosen = _chosen(steps, places.height)
    unmarked = sorted(set(run.ranks) - set(places["rank"]))
    if unmarked and len(places):
        left_out = f"{chosen.why}; left out, no steps like the others': rank {_few(unmarked)}"
        return replace(chosen, why=left_out)
    return chosen


def _within(limits: tuple[int, int] | None, steps: pl.DataFrame) -> pl.DataFrame:
    if limits is None or steps.is_empty():
        return steps
    first, end = limits
    within = steps.filter(pl.col("step").is_between(first, end, closed="left"))
    if within.is_empty():
        numbers = [int(step) for step in steps["step"]]
        raise UsageError(
            f"no step in {first}:{end}",
            hint=f"The trace numbers its steps {min(numbers)} to {max(numbers)}; A:B leaves B out.",
        )
    return within


def _chosen(steps: pl.DataFrame, n_places: int) -> Averages:
    """The first rule of section 1 that leaves steps which all of `n_places` have."""
    is_whole, is_later = pl.col("is_complete"), ~pl.col("is_first")
    for where, n_least, why in (
        (is_whole & is_later, MIN_STEPS, "whole steps other than the first"),
        (is_whole, 1, "all whole steps: too few to leave the first out"),
    ):
        shared = _shared(steps.filter(where), n_places)
        if len(shared) >= n_least:
            return Averages(shared, why, is_comparable=True)
    shared = _shared(steps, n_places)
    sources = set(steps["source"])
    if shared and not sources & {WHOLE, PATTERN}:
        return Averages(shared, "cut steps: no whole one is in every rank", is_comparable=True)
    if shared and sources == {WHOLE}:
        why = "no steps found: the whole trace, in which ranks may hold different work"
        return Averages(shared, why, is_comparable=False)
    return Averages(
        tuple(sorted(set(steps["step"]))),
        "all steps found: ranks have none in common",
        is_comparable=False,
    )


@remembered
def _compared(run: Run) -> pl.DataFrame:
    """The ranks and devices that are averaged over: `rank`, `device`.

    Where some ranks have marks, those without are left out; so is a device that was busy for less
    than `MIN_DEVICE_SHARE` of what its rank's busiest was (a context on another's device, say).
    """
    rows = _rows(run)
    steps = rows.drop_nulls("step")
    busy = (
        rows.filter(pl.col("step").is_null())
        .with_columns(busy_ns=pl.col("dur_ns") - pl.col("idle_ns"))
        .filter(pl.col("busy_ns") >= MIN_DEVICE_SHARE * pl.col("busy_ns").max().over("rank"))
        .select("rank", "device")
    )
    is_marked = ~pl.col("source").is_in([WHOLE, PATTERN])
    marked = steps.filter(is_marked).select("rank").unique()
    places = steps.select("rank", "device").unique().join(busy, on=["rank", "device"], how="semi")
    return places.join(marked, on="rank", how="semi") if marked.height else places


def _few(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (" …" if len(ranks) > 8 else "")


def of_ranks(
    run: Run, table: Callable[[Run, int], pl.LazyFrame], ranks: Collection[int] | None = None
) -> pl.LazyFrame:
    """Rows of a table of each rank, or of some, with the `rank` in front; rank by rank.

    A query over all of them groups by the rank: one query a rank, put together afterwards, takes
    fifty times as long for a thousand ranks.
    """
    chosen = run.ranks if ranks is None else sorted(ranks)
    return pl.concat(
        [
            table(run, rank).select(pl.lit(rank, dtype=pl.Int64).alias("rank"), pl.all())
            for rank in chosen
        ]
    )


def compared(
    run: Run,
    table: Callable[[Run, int], pl.LazyFrame],
    steps: Collection[int],
    ranks: Collection[int] | None = None,
) -> pl.LazyFrame:
    """Rows of a table of some steps and of devices that enter the averages, with the `rank`.

    Devices that hardly run anything are left out.
    """
    devices = mean_steps(run).lazy().select("rank", "device")
    return (
        of_ranks(run, table, ranks)
        .filter(pl.col("step").is_in(list(steps)))
        .join(devices, on=["rank", "device"], how="semi", maintain_order="left")
    )


@remembered
def mean_steps(run: Run) -> pl.DataFrame:
    """Mean of each measure (Float64, ns) over the averaged steps, by rank and device, sorted."""
    return (
        breakdowns(run)
        .filter("is_averaged")
        .group_by("rank", "device")
        .agg(pl.col(MEASURES).mean(), n_steps=pl.len().cast(pl.Int64))
        .sort("rank", "device")
    )


@remembered
def averaged(run: Run, table: Callable[[Run, int], pl.LazyFrame]) -> pl.DataFrame:
    """Rows of a derived table of each rank that belong to its averaged steps, with the `rank`.

    Args:
        run: the run.
        table: gives the rows of one rank, with their `step`.
    """
    steps = breakdowns(run).filter("is_averaged").select("rank", "step").unique().lazy()
    rows = of_ranks(run, table)
    return rows.join(steps, on=["rank", "step"], how="semi", maintain_order="left").collect()


def _shared(wanted: pl.DataFrame, n_places: int) -> tuple[int, ...]:
    """Steps that all ranks and devices have among `wanted`."""
    counts = wanted.group_by("step").agg(pl.struct("rank", "device").n_unique().alias("n"))
    return tuple(sorted(counts.filter(pl.col("n") == n_places)["step"].to_list()))
