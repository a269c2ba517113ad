"""How many bytes each collective moved, how long that took, and the bandwidth that makes.

Bytes are those of nccl-tests: of all-gather and reduce-scatter the total (what a rank puts in × n),
of all-to-all the most that a member sends or receives, else what a rank puts in. Time is the
transfer of the instance, never the duration of one kernel, which holds waiting: max b − max a on
the common clock, else the shortest member; null where neither is known. Where a member was not
recorded the last may be missing, so that the shortest only bounds it (`is_bound`).

    algbw = bytes / time,  busbw = algbw × factor

with the factors of nccl-tests (doc/PERFORMANCE.md): all-reduce 2(n−1)/n; all-gather,
reduce-scatter, all-to-all, gather, scatter (n−1)/n; broadcast, reduce, send, recv 1. In GB/s of 10⁹
bytes, which is bytes per ns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.cached import cached
from tracekit.derive.kernel_kinds import POINT_TO_POINT, SYNCHRONIZING
from tracekit.derive.synchronizing import is_split
from tracekit.derive.waits import waits
from tracekit.schema.table import F64, FLAG, I64, START, TEXT, Column, Table

if TYPE_CHECKING:
    from tracekit.store import Run

TRAFFIC = Table(
    "traffic",
    "collective or message, all its ranks together",
    (
        Column("instance", I64, "", "number of the instance; null where it was not matched"),
        START,
        Column("operation", TEXT, "", "what the host called; null when not known"),
        Column("group", TEXT, "", "group as a person reads it"),
        Column("sender", I64, "", "rank that sends a message; null of others, or when not known"),
        Column("receiver", I64, "", "rank that receives it, likewise"),
        Column("n_members", I64, "", "ranks in the group; null when not known"),
        Column("n_seen", I64, "", "ranks recorded"),
        Column("size_bytes", I64, "bytes", "bytes as nccl-tests count them; null when not known"),
        Column("transfer_ns", I64, "ns", "transfer of the instance; null when not known"),
        Column("is_bound", FLAG, "", "whether a member is missing: the transfer is at most that"),
        Column("algbw_gb_s", F64, "GB/s", "size / transfer"),
        Column("busbw_gb_s", F64, "GB/s", "algbw × factor: what a link carries, for ring or tree"),
    ),
)
TOTAL_IN = "all_gather"
"""Its total is what a rank puts in, times the members."""
TOTAL_OUT = "reduce_scatter"
"""Its total is what a rank gets, times the members."""
_PART = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
_WHOLE = ("broadcast", "reduce", "send", "recv")


def traffic(run: Run) -> pl.LazyFrame:
    """Every collective and message of the run (`TRAFFIC`), sorted by start."""
    return cached(
        run, TRAFFIC, lambda: _traffic(waits(run), has_all=not run.manifest.missing_ranks)
    )


def comparable(run: Run) -> pl.LazyFrame:
    """Rows of `TRAFFIC` that can be compared: matched, whole, of a known size and transfer.

    Transfers of unknown sizes may be of any size.
    """
    return traffic(run).filter(
        ~pl.col("is_bound")
        & pl.col("instance").is_not_null()
        & pl.col("size_bytes").is_not_null()
        & (pl.col("transfer_ns") > 0)
    )


def bus_factor() -> pl.Expr:
    """Busbw / algbw of `operation` among `n_members`; null where it is not defined."""
    n, operation = pl.col("n_members"), pl.col("operation")
    return (
        pl.when(operation == "all_reduce")
        .then(2 * (n - 1) / n)
        .when(operation.is_in(_PART))
        .then((n - 1) / n)
        .when(operation.is_in(_WHOLE))
        .then(1.0)
    )


def _traffic(calls: pl.LazyFrame, *, has_all: bool) -> pl.DataFrame:
    one = pl.int_range(pl.len())  # what was not matched is an instance of its own
    n = pl.col("n_members")
    nbytes = (
        pl.when(pl.col("operation") == TOTAL_IN)
        .then(pl.coalesce("out_bytes", pl.col("in_bytes") * n))
        .when(pl.col("operation") == TOTAL_OUT)
        .then(pl.coalesce("in_bytes", pl.col("out_bytes") * n))
        .when(pl.col("operation") == "all_to_all")
        .then(pl.max_horizontal("in_bytes", "out_bytes"))
        .otherwise(pl.coalesce("in_bytes", "out_bytes"))
    )
    message = pl.col("operation").is_in(list(POINT_TO_POINT))
    algbw = pl.col("size_bytes") / pl.when(pl.col("transfer_ns") > 0).then("transfer_ns")
    return (
        calls.with_columns(is_split=is_split())
        .group_by(pl.coalesce("instance", -1 - one).alias("key"))
        .agg(
            pl.col("instance").first(),
            pl.col("start_ns").min(),
            pl.col("operation").sort().first(),
            pl.col("group").first(),
            sender=pl.col("rank").filter(pl.col("operation") == "send").first(),
            receiver=pl.col("rank").filter(pl.col("operation") == "recv").first(),
            n_members=pl.col("n_expected").max(),
            n_seen=pl.col("n_seen").max(),
            in_bytes=pl.col("bytes_in").max(),
            out_bytes=pl.col("bytes_out").max(),
            shortest_ns=pl.col("dur_ns").min(),
            aligned_ns=(pl.col("entered_ns") + pl.col("dur_ns")).max() - pl.col("entered_ns").max(),
            is_aligned=pl.col("entered_ns").is_not_null().all(),
            is_synchronizing=pl.col("is_split").all()
            | pl.col("operation").is_in(list(SYNCHRONIZING)).all() & (pl.len() == 1),
        )
        # of a group that is not recorded all members were matched, if no rank is missing
        .with_columns(
            n_members=pl.when(pl.lit(has_all) & (pl.col("n_seen") > 1))
            .then(n.fill_null(pl.col("n_seen")))
            .otherwise(n)
        )
        .with_columns(
            size_bytes=nbytes,
            is_bound=(pl.col("n_seen") < n).fill_null(value=True),
            transfer_ns=pl.when(pl.col("is_aligned") & (pl.col("n_seen") > 1))
            .then("aligned_ns")
            .when(pl.col("is_synchronizing") | (message & (pl.col("n_seen") > 1)))
            .then("shortest_ns"),
        )
        .with_columns(algbw_gb_s=algbw)
        .with_columns(busbw_gb_s=pl.col("algbw_gb_s") * bus_factor())
        .select(list(TRAFFIC.schema))
        .sort("start_ns", "group", "operation", "instance", nulls_last=True)
        .collect()
    )
