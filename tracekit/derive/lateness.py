"""Who made the others wait, collective by collective, and what that cost where nothing hid it.

A rank is late in an instance if its lateness exceeds the instance's error and half of the greatest
lateness there; a tie or anything inside the error blames nobody. The others' waiting is shared
among the late ranks in proportion to their lateness. Waiting hidden under compute costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.activity import COMPUTE, activity, device_of_call, has_device_events
from tracekit.derive.averages import of_ranks
from tracekit.derive.cached import cached
from tracekit.derive.intervals import covered_ns
from tracekit.derive.steps import spans
from tracekit.derive.waits import waits
from tracekit.schema.table import F64, I64, TEXT, Column, Table

if TYPE_CHECKING:
    from tracekit.store import Run

NO_GROUP = "not recorded"
"""Label of a group that no metadata names."""
N_NAMED = 16
"""So many ranks of a group, and how many it has, tell it from others."""
EXPOSED = Table(
    "exposed_waits",
    "collective on one rank with the exposed part of its wait",
    (
        Column("rank", I64, "", "rank"),
        Column("instance", I64, "", "instance of the collective"),
        Column("exposed_ns", I64, "ns", "waiting under which no compute kernel ran"),
    ),
)
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
        Column("n_late", I64, "", "late ranks in the instance"),
        Column("caused_ns", F64, "ns", "its part of the exposed waiting of all others"),
        Column("victim_ns", F64, "ns", "its part of the median victim's exposed wait"),
        Column("next_ns", F64, "ns", "least exposed wait of the others: gone if no rank is late"),
    ),
)


def late_calls(run: Run) -> pl.DataFrame:
    """Every late arrival (`LATENESS`), sorted by start."""
    return cached(run, LATENESS, lambda: _late_calls(run)).collect()


def compared_calls(run: Run) -> pl.DataFrame:
    """Collectives with a known wait (`WAITS`); where devices were recorded, those on devices only.

    A gloo barrier of such a job keeps the host waiting, not the device. A group that was not
    recorded is told by its members: others have none in common with it.
    """
    is_on_device = ~pl.col("name").str.starts_with("gloo:")
    known = waits(run).filter(pl.col("wait_ns").is_not_null())
    if has_device_events(run):
        known = known.filter(is_on_device)
    ranks = pl.col("rank").sort().head(N_NAMED).cast(pl.String).str.join(", ")
    members = known.group_by("instance").agg(
        members=pl.format("{} ({} ranks: {})", pl.lit(NO_GROUP), pl.len(), ranks)
    )
    is_named = pl.col("group") != NO_GROUP
    return (
        known.join(members, on="instance", validate="m:1", maintain_order="left")
        .with_columns(group=pl.when(is_named).then("group").otherwise("members"))
        .drop("members")
        .collect()
    )


def exposed_waits(run: Run) -> pl.DataFrame:
    """The part of each known wait under which no compute ran (`EXPOSED`), by instance and rank."""
    return cached(run, EXPOSED, lambda: _exposed(run)).collect()


def _exposed(run: Run) -> pl.DataFrame:
    calls = compared_calls(run)
    if calls.is_empty():
        return EXPOSED.empty()
    by_rank = calls.partition_by("rank", as_dict=True)
    rows = [_with_exposure(run, int(rank), part) for (rank,), part in by_rank.items()]
    return pl.concat(rows).select(list(EXPOSED.schema)).sort("instance", "rank")


def is_late() -> pl.Expr:
    """Whether a rank is late in an instance: beyond its error and half of the greatest lateness."""
    late = pl.col("late_ns")
    greatest = late.max().over("instance")
    return ((late > pl.col("error_ns")) & (2 * late > greatest)).fill_null(value=False)


def _late_calls(run: Run) -> pl.DataFrame:
    calls = compared_calls(run)
    if calls.is_empty():
        return LATENESS.empty()
    exposed = exposed_waits(run)
    calls = calls.join(exposed, on=["rank", "instance"], validate="1:1").with_columns(
        is_late=is_late()
    )
    blame = pl.col("late_ns") / pl.col("late_ns").sum().over("instance")
    victims = (
        calls.filter(~pl.col("is_late"))
        .group_by("instance")
        .agg(
            total_ns=pl.col("exposed_ns").sum(),
            middle_ns=pl.col("exposed_ns").median(),
            next_ns=pl.col("exposed_ns").min(),
        )
    )
    late = (
        calls.filter("is_late")
        .with_columns(blame=blame, n_late=pl.len().over("instance"))
        .join(victims, on="instance", how="inner", validate="m:1")
        .with_columns(
            caused_ns=pl.col("total_ns") * pl.col("blame"),
            victim_ns=pl.col("middle_ns") * pl.col("blame"),
        )
    )
    return _with_step(run, late)


def _with_exposure(run: Run, rank: int, calls: pl.DataFrame) -> pl.DataFrame:
    """Add `exposed_ns`: the part of each wait of one rank under which no compute kernel runs."""
    compute = activity(run, rank).filter(pl.col("class") == COMPUTE).collect()
    entered_ns = pl.col("start_ns") + pl.col("wait_ns")
    hidden_ns = covered_ns(
        calls.select("start_ns", device=device_of_call(run), end_ns=entered_ns),
        compute,
        "device",
    )
    return calls.with_columns(exposed_ns=pl.col("wait_ns") - hidden_ns)


def _with_step(run: Run, calls: pl.DataFrame) -> pl.DataFrame:
    opened = of_ranks(run, spans).collect()
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
