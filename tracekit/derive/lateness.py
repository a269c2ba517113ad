"""Who made the others wait, collective by collective, and what that cost where nothing hid it.

A rank is late in an instance if its lateness exceeds the instance's error and half of the greatest
lateness there; a tie or anything inside the error blames nobody. The others' waiting is shared among
the late ranks in proportion. Waiting hidden under compute costs nothing and is scaled away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.averages import breakdowns
from tracekit.derive.cached import cached
from tracekit.derive.steps import windows
from tracekit.derive.waits import waits
from tracekit.schema.table import F64, I64, TEXT, Column, Table

if TYPE_CHECKING:
    from tracekit.store import Run

LATENESS = Table(
    "lateness",
    "late rank in one instance of a collective",
    (
        Column("rank", I64, "", "the late rank"),
        Column("instance", I64, "", "instance of the collective"),
        Column("step", I64, "", "step of the late rank; null outside all"),
        Column("group", TEXT, "", "group of the collective"),
        Column("operation", TEXT, "", "operation"),
        Column("start_ns", I64, "ns", "when the late rank entered"),
        Column("late_ns", I64, "ns", "later than the median member"),
        Column("error_ns", I64, "ns", "error of the instance"),
        Column("caused_ns", F64, "ns", "exposed waiting of all others that it caused"),
        Column("victim_ns", F64, "ns", "exposed wait of the median victim"),
        Column(
            "gain_ns", F64, "ns", "exposed time that ends if only this rank comes with the next one"
        ),
    ),
)


def late_calls(run: Run) -> pl.DataFrame:
    """Every late arrival (`LATENESS`), sorted by start."""
    return cached(run, LATENESS, lambda: _late_calls(run)).collect()


def _late_calls(run: Run) -> pl.DataFrame:
    calls = waits(run).filter(pl.col("wait_ns").is_not_null()).collect()
    if calls.is_empty():
        return LATENESS.empty()
    calls = calls.join(_exposed_share(run, calls), on="rank", how="left", validate="m:1")
    exposed = pl.col("wait_ns") * pl.col("exposed_share")
    late = pl.col("late_ns").clip(0)
    is_late = (pl.col("late_ns") > pl.col("error_ns")) & (
        pl.col("late_ns") > late.max().over("instance") / 2
    )
    calls = calls.with_columns(exposed_ns=exposed, is_late=is_late.fill_null(value=False))
    blame = pl.col("late_ns") / pl.col("late_ns").sum().over("instance")
    victims = (
        calls.filter(~pl.col("is_late"))
        .group_by("instance")
        .agg(
            total_ns=pl.col("exposed_ns").sum(),
            victim_ns=pl.col("exposed_ns").median(),
            next_ns=pl.col("exposed_ns").min(),
        )
    )
    return _with_step(
        run,
        calls.filter("is_late")
        .with_columns(blame=blame, n_late=pl.len().over("instance"))
        .join(victims, on="instance", how="inner", validate="m:1")
        .with_columns(
            caused_ns=pl.col("total_ns") * pl.col("blame"),
            victim_ns=pl.col("victim_ns") * pl.col("blame"),
            gain_ns=pl.when(pl.col("n_late") == 1).then("next_ns").otherwise(0.0),
        ),
    )


def _exposed_share(run: Run, calls: pl.DataFrame) -> pl.DataFrame:
    """Share of each rank's waiting that nothing hid, over the whole trace."""
    exposed = (
        breakdowns(run)
        .filter(pl.col("step").is_null())
        .group_by("rank")
        .agg(pl.col("exposed_waiting_ns").sum())
    )
    return (
        calls.group_by("rank")
        .agg(pl.col("wait_ns").sum())
        .join(exposed, on="rank", how="left")
        .select(
            "rank",
            exposed_share=pl.when(pl.col("wait_ns") > 0)
            .then((pl.col("exposed_waiting_ns") / pl.col("wait_ns")).clip(0, 1))
            .otherwise(0.0)
            .fill_null(0.0),
        )
    )


def _with_step(run: Run, calls: pl.DataFrame) -> pl.DataFrame:
    opened = pl.concat(
        [
            windows(run, rank)
            .group_by("step")
            .agg(pl.col("start_ns").min(), pl.col("end_ns").max())
            .select(
                pl.lit(rank, dtype=pl.Int64).alias("rank"),
                "step",
                opens_ns="start_ns",
                closes_ns="end_ns",
            )
            for rank in run.ranks
        ]
    ).collect()
    end = pl.col("start_ns") + pl.col("dur_ns")
    return (
        calls.sort("start_ns")
        .with_columns(end_ns=end)
        .join_asof(
            opened.sort("opens_ns"),
            left_on="start_ns",
            right_on="opens_ns",
            by="rank",
            strategy="backward",
            check_sortedness=False,
        )
        .with_columns(step=pl.when(pl.col("start_ns") < pl.col("closes_ns")).then("step"))
        .select(pl.col(name).cast(dtype) for name, dtype in LATENESS.schema.items())
        .sort("start_ns", "rank")
    )
