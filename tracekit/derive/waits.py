"""How long each rank waited inside each collective: by two estimators, with the error of both.

Clock-free: x = min d over the members is the transfer of the instance, d − x the wait of a rank: no
member can leave before the last has entered, so the one that came last stays shortest. It holds
only where that is so (all-reduce, all-gather, reduce-scatter, barrier, even all-to-all) and bytes
are equal; elsewhere the wait is null, "not known", never zero. Splits and bytes that no trace
recorded are taken as equal, and the finding says so.

Clock-aligned: max a − a_r on the common clock (`clocks`), for messages too: both sides of one wait
for the later; and for uneven all-to-all, where each waits for what all others send it: one that
gets nothing of the last may leave before, and then all of its call is waiting. Null where the
clocks of the members cannot be compared.

Where a member was not recorded it may have come last: d − x is then the least that a rank waited,
and what is left of the call is waiting or transfer, "not split".

The error of an instance is the largest of: what the estimators differ by, how far its ends lie
apart, the clocks' residual. Without a common clock it is the spread of its ends with each rank's
constant offset removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.cached import cached
from tracekit.derive.clocks import clocks, corrected
from tracekit.derive.instances import INSTANCES, instances
from tracekit.derive.kernel_kinds import POINT_TO_POINT
from tracekit.derive.synchronizing import is_split
from tracekit.schema.table import I64, Column, Table

if TYPE_CHECKING:
    from tracekit.store import Run

WAITS = Table(
    "waits",
    "collective on one rank with its wait and lateness",
    (
        *INSTANCES.columns,
        Column(
            "wait_ns",
            I64,
            "ns",
            "time inside the call before the last rank entered; null when not known",
        ),
        Column(
            "transfer_ns",
            I64,
            "ns",
            "transfer of the instance: the shortest member; null where a member is missing",
        ),
        Column("late_ns", I64, "ns", "how much later than the median member this rank entered"),
        Column("error_ns", I64, "ns", "error of the instance's waits"),
        Column(
            "aligned_wait_ns",
            I64,
            "ns",
            "wait by the common clock, of messages too; null where there is none",
        ),
        Column("entered_ns", I64, "ns", "start on the common clock; null where there is none"),
        Column("tail_ns", I64, "ns", "how much later than the first member it left, likewise"),
    ),
)


def waits(run: Run) -> pl.LazyFrame:
    """All collectives with waits (`WAITS`), sorted by instance, then rank."""
    return cached(
        run,
        WAITS,
        lambda: _by_rank(
            run, _waits(_on_common_clock(run), has_all=not run.manifest.missing_ranks)
        ),
    )


def waits_of(run: Run, rank: int) -> pl.LazyFrame:
    """The waits of one rank (`WAITS`), sorted by instance."""
    whole = waits(run)
    return cached(run, WAITS, lambda: whole.filter(pl.col("rank") == rank).collect(), rank)


def _by_rank(run: Run, rows: pl.DataFrame) -> pl.DataFrame:
    """Keep each rank's part too: read out of the whole by each rank, it would be read n times."""
    for (rank,), part in rows.partition_by("rank", as_dict=True).items():
        cached(run, WAITS, part.clone, int(rank))
    return rows


def wait_ns() -> pl.Expr:
    """Time a rank spent in an instance beyond the shortest member."""
    return pl.col("dur_ns") - pl.col("dur_ns").min().over("instance")


def late_ns() -> pl.Expr:
    """How much later than the median member a rank entered.

    All leave together, so a_r − median a, seen from the common end, is median d − d_r: the same
    lateness without a clock that two ranks share, and without the call before it.
    """
    return (pl.col("dur_ns").median().over("instance") - pl.col("dur_ns")).round().cast(pl.Int64)


def is_whole(*, has_all: bool) -> pl.Expr:
    """Whether all members were recorded; of a group that is not known, if no rank is missing."""
    return (pl.col("n_seen") == pl.col("n_expected")).fill_null(value=has_all)


def _on_common_clock(run: Run) -> pl.DataFrame:
    """Instances with `entered_ns`, `left_ns`, `clock_error_ns`; null without a common clock."""
    here = "instance"
    is_comparable = (
        pl.col(here).is_not_null()
        & pl.col("is_usable").all().over(here)
        & (pl.col("component").n_unique().over(here) == 1)
    )
    start, end = pl.col("start_ns"), pl.col("start_ns") + pl.col("dur_ns")
    return (
        instances(run)
        .collect()
        .join(clocks(run), on="rank", validate="m:1", maintain_order="left")
        .with_columns(is_comparable=is_comparable)
        .with_columns(
            entered_ns=pl.when("is_comparable").then(corrected(start)),
            left_ns=pl.when("is_comparable").then(corrected(end)),
            clock_error_ns=pl.when("is_comparable").then(pl.col("error_ns").max().over(here)),
        )
        .select(*INSTANCES.schema, "entered_ns", "left_ns", "clock_error_ns")
    )


def _aligned_wait_ns() -> pl.Expr:
    """Max a − a_r within the call, where the last to enter lets all of them go."""
    waited_ns = pl.col("entered_ns").max().over("instance") - pl.col("entered_ns")
    lets_go = pl.col("operation").is_in([*POINT_TO_POINT, "all_to_all"]) & (pl.col("n_seen") > 1)
    is_known = waited_ns.is_not_null() & (pl.col("is_split") | lets_go.fill_null(value=False))
    return pl.when(is_known).then(pl.min_horizontal(waited_ns, "dur_ns"))


def _waits(calls: pl.DataFrame, *, has_all: bool) -> pl.DataFrame:
    end = pl.col("start_ns") + pl.col("dur_ns")
    reference = end.median().over("instance").round().cast(pl.Int64)
    here = "instance"
    from_own_median_ns = pl.col("from_median_ns") - pl.col("from_median_ns").median().over(
        "rank", "group"
    ).round().cast(pl.Int64)
    differ_ns = (pl.col("wait_ns") - pl.col("aligned_wait_ns")).abs().max().over(here)
    apart_ns = pl.col("left_ns").max().over(here) - pl.col("left_ns").min().over(here)
    clock_ns = pl.col("clock_error_ns").round().cast(pl.Int64)
    spread_ns = pl.col("steady_ns").max().over(here) - pl.col("steady_ns").min().over(here)
    aligned_error_ns = pl.max_horizontal(differ_ns, apart_ns, clock_ns)
    return (
        calls.with_columns(is_split=is_split())
        .with_columns(
            from_median_ns=pl.when("is_split").then(end - reference),
            wait_ns=pl.when("is_split").then(wait_ns()),
            aligned_wait_ns=_aligned_wait_ns(),
            tail_ns=pl.col("left_ns") - pl.col("left_ns").min().over(here),
        )
        .with_columns(
            steady_ns=from_own_median_ns,
            transfer_ns=pl.when(pl.col("is_split") & is_whole(has_all=has_all)).then(
                pl.col("dur_ns").min().over(here)
            ),
            late_ns=pl.when("is_split").then(late_ns()),
        )
        .with_columns(
            error_ns=pl.when("is_split").then(
                pl.when(pl.col("left_ns").is_null()).then(spread_ns).otherwise(aligned_error_ns)
            )
        )
        .select(list(WAITS.schema))
        .sort("instance", "rank", "start_ns", nulls_last=True)
    )
