"""Gradients that are reduced in every micro-batch of a step, though the last one would do.

A reduction belongs to the backward turn after whose first launch it was called. What is reduced in
one micro-batch and, to a hundredth of the bytes, again in the last one of its step is repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.averages import averages
from tracekit.derive.cached import remembered
from tracekit.derive.groups import groups
from tracekit.derive.micro_batches import turns
from tracekit.derive.waits import waits_of

if TYPE_CHECKING:
    from tracekit.store import Run

REDUCTIONS = ("all_reduce", "reduce_scatter")
MIN_BYTES = 1 << 16
"""Smaller ones carry a loss or a norm."""
MAX_DIFFERENCE = 0.01
_CALL = ["start_ns", "stream", "correlation"]
_PLACE = ["rank", "step", "group", "operation"]


@remembered
def repeated_reductions(run: Run) -> pl.DataFrame:
    """Reductions of averaged steps that the last micro-batch of their step repeats.

    Returns:
        `rank`, `step`, `group`, `operation`, `micro_batch`, `n_micro_batches` (in which the same is
        reduced), `instance`, `bytes_in`; sorted by rank and step.
    """
    is_data = (pl.col("dimension") == "data").fill_null(value=False)
    of_data = groups(run).filter(is_data)["group"]
    calls = pl.concat([_of_rank(run, rank) for rank in run.ranks]).filter(
        pl.col("group").is_in(of_data.implode())
        & pl.col("step").is_in(list(averages(run).steps))
        & (pl.col("bytes_in") >= MIN_BYTES)
    )
    totals = calls.group_by(*_PLACE, "micro_batch").agg(total=pl.col("bytes_in").sum())
    is_last = pl.col("micro_batch") == pl.col("micro_batch").max().over(_PLACE)
    of_last = pl.col("total").filter(is_last).first().over(_PLACE)
    alike = (
        totals.with_columns(is_last=is_last, of_last=of_last)
        .filter((pl.col("total") / pl.col("of_last") - 1).abs() <= MAX_DIFFERENCE)
        .with_columns(n_micro_batches=pl.len().over(_PLACE).cast(pl.Int64))
        .filter(~pl.col("is_last"))
    )
    place = [*_PLACE, "micro_batch"]
    return (
        calls.join(alike.select(*place, "n_micro_batches"), on=place, validate="m:1")
        .select(*place, "n_micro_batches", "instance", "bytes_in")
        .sort("rank", "step", "micro_batch", "instance")
    )


def _of_rank(run: Run, rank: int) -> pl.DataFrame:
    """Reductions of one rank with the step and the number of the backward turn they belong to."""
    enqueued = run.scan("collectives", rank).select(*_CALL, "enqueue_ns").unique(_CALL)
    backward = (
        turns(run, rank)
        .filter(~pl.col("is_forward"))
        .select("step", "micro_batch", "launched_ns")
        .sort("launched_ns")
    )
    return (
        waits_of(run, rank)
        .filter(pl.col("operation").is_in(REDUCTIONS))
        .select(*_CALL, "instance", "group", "operation", "bytes_in")
        .join(enqueued, on=_CALL, nulls_equal=True)
        .drop_nulls("enqueue_ns")
        .sort("enqueue_ns")
        .join_asof(backward, left_on="enqueue_ns", right_on="launched_ns", strategy="backward")
        .drop_nulls("step")
        .select(pl.lit(rank, dtype=pl.Int64).alias("rank"), pl.all())
        .collect()
    )
