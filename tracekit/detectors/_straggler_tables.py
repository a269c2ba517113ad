"""Tables of evidence for a straggler."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.findings import Column, Evidence
from tracekit.units import Unit
from tracekit.waiting import BY_STEP, LATENESS, WHY_LATE

if TYPE_CHECKING:
    from tracekit.derive.why_late import WhyLate


def by_rank(calls: pl.DataFrame, late: pl.DataFrame) -> Evidence:
    """Waiting and lateness of each rank: calls with known waits, and late arrivals."""
    own = late.group_by("rank").agg(
        pl.col("late_ns", "caused_ns").sum(), n_late=pl.len().cast(pl.Int64)
    )
    caused = pl.col("caused_ns") / pl.col("caused_ns").sum()
    aligned = pl.when(pl.col("aligned_wait_ns").is_not_null().all()).then("aligned_wait_ns")
    waited = ("wait_ns", "aligned_ns", "wait_error_ns")
    table = (
        calls.group_by("rank")
        .agg(
            n_calls=pl.len(),
            wait_ns=pl.col("wait_ns").sum(),
            aligned_ns=aligned.sum(),
            wait_error_ns=pl.col("error_ns").sum(),
        )
        .join(own, on="rank", how="left", validate="1:1")
        .with_columns(pl.col("n_late", "late_ns", "caused_ns").fill_null(0))
        .sort("rank")  # doubles that are added in another order differ in the last digit
        .with_columns(caused_share=caused.fill_nan(0.0))
        .sort("caused_share", "rank", descending=[True, False])
        .head(16)
        .select("rank", "n_calls", "n_late", "late_ns", *waited, "caused_share")
    )
    return Evidence(
        title="Who waited, who was late",
        columns=(
            Column("rank"),
            Column("collectives compared, whole trace", Unit.COUNT),
            Column("late in", Unit.COUNT),
            Column("lateness, sum", Unit.NS),
            Column("own waiting, whole trace", Unit.NS),
            Column("the same by aligned clocks", Unit.NS),
            Column("error of both", Unit.NS),
            Column("share of the waiting it caused", Unit.SHARE),
        ),
        rows=tuple(table.iter_rows()),
    )


def parts_of_lateness(why: WhyLate) -> Evidence:
    """What the late rank did instead, part by part; they sum to the lateness."""
    total = (LATENESS, None, None, why.late_ns)
    rows = why.parts.filter((pl.col("own_ns") != 0) | (pl.col("peer_ns") != 0)).rows()
    return Evidence(
        title=WHY_LATE,
        columns=(
            Column("part"),
            Column("this rank, a step", Unit.NS),
            Column("median peer, a step", Unit.NS),
            Column("more than the peer", Unit.NS),
        ),
        rows=(*rows, total),
    )


def work_by_class(why: WhyLate) -> tuple[Evidence, ...]:
    """Compute by class of work, where there was any."""
    if why.kinds.is_empty():
        return ()
    ratio = (pl.col("own_ns") / pl.col("peer_ns")).replace([float("inf")], None).fill_nan(None)
    return (
        Evidence(
            title="Its compute against the median peer's, by class of work",
            columns=(
                Column("class"),
                Column("this rank, a step", Unit.NS),
                Column("median peer, a step", Unit.NS),
                Column("ratio", Unit.RATIO),
            ),
            rows=tuple(why.kinds.with_columns(ratio=ratio).iter_rows()),
        ),
    )


def by_step(own: pl.DataFrame, steps: tuple[int, ...]) -> Evidence:
    """Lateness of a culprit in each averaged step (rows of `by_instance`)."""
    late = own.group_by("step").agg(
        pl.col("late_ns").sum(), n_late=pl.len().cast(pl.Int64), victim_ns=pl.col("victim_ns").sum()
    )
    table = (
        pl.DataFrame({"step": list(steps)}, schema={"step": pl.Int64})
        .join(late, on="step", how="left", validate="1:1")
        .with_columns(pl.col("late_ns", "n_late", "victim_ns").fill_null(0))
        .select("step", "n_late", "late_ns", "victim_ns")
    )
    return Evidence(
        title=BY_STEP,
        columns=(
            Column("step"),
            Column("late in", Unit.COUNT),
            Column("lateness, sum", Unit.NS),
            Column("others' exposed waiting, median victim", Unit.NS),
        ),
        rows=tuple(table.iter_rows()),
    )
