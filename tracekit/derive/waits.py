"""How long each rank waited inside each collective, without clocks.

x = min d over the members is the transfer of the instance, d − x the wait of a rank: no member can
leave before the last has entered, so the one that came last stays shortest. It holds only where
that is so (all-reduce, all-gather, reduce-scatter, barrier, even all-to-all) and bytes are equal;
elsewhere the wait is null, "not known", never zero. Splits and bytes that no trace recorded are
taken as equal, and the finding says so.

Where a member was not recorded it may have come last: d − x is then the least that a rank waited,
and what is left of the call is waiting or transfer, "not split".

The ends of an instance tell how sure that is: with each rank's constant clock offset removed,
their spread is the error of the instance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.cached import cached
from tracekit.derive.instances import INSTANCES, instances
from tracekit.derive.kernel_kinds import SYNCHRONIZING
from tracekit.schema.table import I64, Column, Table

if TYPE_CHECKING:
    from tracekit.store import Run

MAX_BYTES_SPREAD_SHARE = 0.01
"""Members of one instance may differ by this share: FSDP's last rank has some elements less."""

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
        Column("error_ns", I64, "ns", "spread of the instance's ends, clock offsets removed"),
    ),
)


def waits(run: Run) -> pl.LazyFrame:
    """All collectives with waits (`WAITS`), sorted by instance, then rank."""
    return cached(
        run,
        WAITS,
        lambda: _by_rank(
            run, _waits(instances(run).collect(), has_all=not run.manifest.missing_ranks)
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


def is_split() -> pl.Expr:
    """Whether waiting and transfer of an instance can be told apart without clocks."""
    nbytes = pl.col("bytes_in")
    largest = nbytes.max().over("instance")
    is_even = (largest - nbytes.min().over("instance")) <= MAX_BYTES_SPREAD_SHARE * largest
    return (
        pl.col("instance").is_not_null()
        & (pl.col("n_seen") > 1)
        & pl.col("operation").is_in(list(SYNCHRONIZING))
        & (pl.col("operation").n_unique().over("instance") == 1)
        & pl.col("has_even_splits").all().over("instance")
        & is_even.fill_null(value=True)
    ).fill_null(value=False)


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


def _waits(calls: pl.DataFrame, *, has_all: bool) -> pl.DataFrame:
    end = pl.col("start_ns") + pl.col("dur_ns")
    split = is_split()
    reference = end.median().over("instance").round().cast(pl.Int64)
    return (
        calls.with_columns(is_split=split)
        .with_columns(from_median_ns=pl.when("is_split").then(end - reference))
        .with_columns(
            aligned_ns=pl.col("from_median_ns")
            - pl.col("from_median_ns").median().over("rank", "group").round().cast(pl.Int64)
        )
        .with_columns(
            wait_ns=pl.when("is_split").then(wait_ns()),
            transfer_ns=pl.when(pl.col("is_split") & is_whole(has_all=has_all)).then(
                pl.col("dur_ns").min().over("instance")
            ),
            late_ns=pl.when("is_split").then(late_ns()),
            error_ns=pl.when("is_split").then(
                pl.col("aligned_ns").max().over("instance")
                - pl.col("aligned_ns").min().over("instance")
            ),
        )
        .select(list(WAITS.schema))
        .sort("instance", "rank", "start_ns", nulls_last=True)
    )
