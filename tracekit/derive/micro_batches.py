"""Forward and backward turns of the micro-batches of a step, told by who launched what, in order.

The training thread launches forward turns, autograd's thread backward ones, and a stage of a
pipeline sends or receives between two turns. So a turn is what was launched in a step without a
change of thread and without a message between; those of context parallel rings are no stage's. The
optimizer and what is shorter than a tenth of the usual turn is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.activity import COMPUTE, device_of_call, training_thread
from tracekit.derive.cached import cached
from tracekit.derive.groups import groups
from tracekit.derive.instances import instances
from tracekit.derive.kernel_kinds import POINT_TO_POINT
from tracekit.derive.steps import launched
from tracekit.schema.table import FLAG, I64, Column, Table

if TYPE_CHECKING:
    from tracekit.store import Run

TURNS = Table(
    "turns",
    "forward or backward turn of a micro-batch on one rank",
    (
        Column("step", I64, "", "step that launched it"),
        Column("is_forward", FLAG, "", "launched by the training thread"),
        Column("micro_batch", I64, "", "number among the turns of its kind in the step"),
        Column("compute_ns", I64, "ns", "sum of its compute kernels"),
        Column("launched_ns", I64, "ns", "when its first kernel was launched"),
    ),
)
MIN_TURN_SHARE = 0.1


def turns(run: Run, rank: int) -> pl.LazyFrame:
    """Turns of one rank (`TURNS`), by step, backward first, and micro-batch."""
    return cached(run, TURNS, lambda: _turns(run, rank), rank)


def _turns(run: Run, rank: int) -> pl.DataFrame:
    rings = groups(run).filter(dimension="context")["group"].drop_nulls()
    messages = (
        instances(run)
        .filter(
            (pl.col("rank") == rank)
            & pl.col("operation").is_in(list(POINT_TO_POINT))
            & ~pl.col("group").is_in(rings.implode())
        )
        .select("stream", "start_ns", device=device_of_call(run), is_message=pl.lit(value=True))
        .unique(["device", "stream", "start_ns"])
    )
    main = pl.lit(training_thread(run, rank), dtype=pl.Int64)
    is_message = pl.col("is_message").fill_null(value=False)
    is_counted = is_message | ((pl.col("class") == COMPUTE) & (pl.col("kind") != "optimizer"))
    is_other = (pl.col(name) != pl.col(name).shift(1) for name in ("launch_thread", "step"))
    is_new = pl.any_horizontal(*is_other, is_message)
    dur_ns = pl.col("end_ns") - pl.col("start_ns")
    found = (
        launched(run, rank)
        .join(messages, on=["device", "stream", "start_ns"], how="left", validate="m:1")
        .filter(is_counted & pl.col("launch_start_ns").is_not_null())
        .sort("launch_start_ns", "start_ns")
        .with_columns(turn=is_new.fill_null(value=True).cast(pl.Int64).cum_sum())
        .filter(~is_message)
        .group_by("turn", maintain_order=True)
        .agg(
            pl.col("step").first(),
            is_forward=(pl.col("launch_thread") == main).first(),
            compute_ns=dur_ns.sum(),
            launched_ns=pl.col("launch_start_ns").min(),
        )
        .collect()
    )
    usual_ns = pl.col("compute_ns").median().over("is_forward")
    return (
        found.filter(pl.col("compute_ns") >= MIN_TURN_SHARE * usual_ns)
        .sort("turn")
        .with_columns(micro_batch=pl.int_range(pl.len(), dtype=pl.Int64).over("step", "is_forward"))
        .select(list(TURNS.schema))
        .sort("step", "is_forward", "micro_batch")
    )
