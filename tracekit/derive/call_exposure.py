"""Each collective of a rank in its step: waiting and transfer, and what of both no compute hid.

Exposed is what no compute kernel of the same device covers. Collectives that run at the same time
each count by themselves, so that sums over groups can exceed the exposed communication of the step.
Where waiting is not known, the whole call is "not split".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.activity import COMPUTE, activity, device_of_call
from tracekit.derive.cached import cached
from tracekit.derive.intervals import covered_ns
from tracekit.derive.steps import begun_inside, spans
from tracekit.derive.waits import waits_of
from tracekit.schema.table import DUR, I64, START, STREAM, TEXT, Column, Table

if TYPE_CHECKING:
    from tracekit.store import Run

CALL_EXPOSURE = Table(
    "call_exposure",
    "collective of one rank inside a step, and what of it was exposed",
    (
        Column("instance", I64, "", "instance of the collective; null when not matched"),
        Column("step", I64, "", "step it began in"),
        START,
        DUR,
        STREAM,
        Column("device", I64, "", "device, as `activity` numbers it"),
        Column("group", TEXT, "", "group as a person reads it"),
        Column("operation", TEXT, "", "what the host called; null when not known"),
        Column("wait_ns", I64, "ns", "waiting; null when not known"),
        Column("exposed_wait_ns", I64, "ns", "of it exposed; null when not known"),
        Column("transfer_ns", I64, "ns", "the call less its waiting; null when not known"),
        Column("exposed_transfer_ns", I64, "ns", "of it exposed; null when not known"),
        Column("exposed_ns", I64, "ns", "of the whole call exposed"),
    ),
)


def call_exposure(run: Run, rank: int) -> pl.LazyFrame:
    """The calls of one rank inside its steps (`CALL_EXPOSURE`), sorted by start."""
    return cached(run, CALL_EXPOSURE, lambda: _call_exposure(run, rank), rank)


def _call_exposure(run: Run, rank: int) -> pl.DataFrame:
    columns = ("instance", "start_ns", "dur_ns", "stream", "group", "operation", "wait_ns")
    calls = waits_of(run, rank).select(*columns, device=device_of_call(run))
    inside = begun_inside(calls, spans(run, rank)).collect()
    if inside.is_empty():
        return CALL_EXPOSURE.empty()
    compute = activity(run, rank).filter(pl.col("class") == COMPUTE).collect()
    entered_ns = pl.min_horizontal("wait_ns", "dur_ns") + pl.col("start_ns")
    end_ns = pl.col("start_ns") + pl.col("dur_ns")
    whole = inside.select("device", "start_ns", end_ns=end_ns)
    # where waiting is not known nothing is waiting here; it is nulled below
    waiting = inside.select("device", "start_ns", end_ns=entered_ns.fill_null(pl.col("start_ns")))
    is_known = pl.col("wait_ns").is_not_null()
    wait_ns = pl.min_horizontal("wait_ns", "dur_ns")
    return (
        inside.with_columns(
            covered_ns(whole, compute, "device").alias("hidden_ns"),
            covered_ns(waiting, compute, "device").alias("hidden_wait_ns"),
        )
        .with_columns(
            wait_ns=pl.when(is_known).then(wait_ns),
            exposed_wait_ns=pl.when(is_known).then(wait_ns - pl.col("hidden_wait_ns")),
            transfer_ns=pl.when(is_known).then(pl.col("dur_ns") - wait_ns),
            exposed_ns=pl.col("dur_ns") - pl.col("hidden_ns"),
        )
        .with_columns(exposed_transfer_ns=pl.col("exposed_ns") - pl.col("exposed_wait_ns"))
        .select(list(CALL_EXPOSURE.schema))
        .sort("start_ns", "stream", maintain_order=True)
    )
