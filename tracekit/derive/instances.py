"""Which calls on different ranks are one collective: by identifier, sequence number or order.

The communicator's identifier joins exactly; so does the sequence number within a group (its name
and members), except of messages. Without both, calls of one communicator pair by order, after the
windows of the ranks have been aligned: a rank whose capture opens some calls later is shifted, not
late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.cached import cached
from tracekit.derive.kernel_kinds import POINT_TO_POINT
from tracekit.derive.window_shift import NO_GROUP, paired_by_order
from tracekit.schema.table import DEVICE, DUR, FLAG, I64, NAME, START, STREAM, TEXT, Column, Table

if TYPE_CHECKING:
    from tracekit.store import Run

NOT_RECORDED = "not recorded"
"""Label of a group that no trace names."""
INSTANCES = Table(
    "collective_instances",
    "collective on one rank, with the instance it is part of",
    (
        Column("rank", I64, "", "rank"),
        Column("instance", I64, "", "number of the instance in the run; null when not matched"),
        START,
        DUR,
        NAME,
        DEVICE,
        STREAM,
        Column("correlation", I64, "", "joins the kernel"),
        Column("operation", TEXT, "", "what the host called; null when not known"),
        Column("group", TEXT, "", "group as a person reads it: name and members"),
        Column("bytes_in", I64, "bytes", "bytes this rank puts in"),
        Column("bytes_out", I64, "bytes", "bytes this rank gets"),
        Column("n_expected", I64, "", "members of the group; null when not known"),
        Column("n_seen", I64, "", "ranks matched"),
        Column("has_even_splits", FLAG, "", "false where a rank sends members different amounts"),
        Column("match", TEXT, "", "comms id, sequence, order, or not matched"),
    ),
)


def instances(run: Run) -> pl.LazyFrame:
    """All collectives of all ranks (`INSTANCES`), sorted by instance, then rank."""
    return cached(run, INSTANCES, lambda: _instances(run))


def _instances(run: Run) -> pl.DataFrame:
    calls = _with_group(run.scan_all("collectives").collect())
    if calls.is_empty():
        return INSTANCES.empty()
    is_id = pl.col("comms_id").is_not_null()
    # A rank numbers its messages to all peers together, so that both ends count differently.
    is_message = pl.col("operation").is_in(list(POINT_TO_POINT)).fill_null(value=False)
    is_in_group = pl.col("group_key") != NO_GROUP
    is_numbered = ~is_id & ~is_message & pl.col("sequence").is_not_null() & is_in_group
    by_id = calls.filter(is_id).with_columns(
        instance_key=pl.format("id {}", "comms_id"), match=pl.lit("comms id")
    )
    by_sequence = calls.filter(is_numbered).with_columns(
        instance_key=pl.format("seq {} {}", "group_key", "sequence"), match=pl.lit("sequence")
    )
    rest = calls.filter(~is_id & ~is_numbered)
    by_order = (
        paired_by_order(rest)
        if rest.height
        else rest.with_columns(instance_key=pl.lit(None, dtype=pl.String), match=pl.lit("order"))
    )
    columns = [*calls.columns, "instance_key", "match"]
    return _numbered(pl.concat([part.select(columns) for part in (by_id, by_sequence, by_order)]))


def _with_group(calls: pl.DataFrame) -> pl.DataFrame:
    """Add `group_key`, `group_label` and the communicator's place among those of its rank.

    A group is its name and members; point-to-point calls are keyed by sender and receiver instead.
    Where members are not recorded the communicator is its name, else its stream, by the order of
    streams on the rank. The member lists themselves are dropped: they are the bulk of a large job.
    """
    stream_order = pl.col("stream").fill_null(-1).rank("dense").over("rank").cast(pl.Int64)
    calls = calls.with_columns(listing=pl.col("members").hash())
    sender, receiver = _ends()
    pair = pl.format("{} → {} {}", sender, receiver, pl.col("group").fill_null(""))
    return (
        calls.drop("members")
        .join(_groups(calls), on=["group", "listing"], how="left", nulls_equal=True, validate="m:1")
        .with_columns(
            communicator=pl.coalesce(
                pl.format("group {}", "group"), pl.format("stream {}", stream_order)
            ),
            group_key=pl.coalesce(pair, "group_key"),
        )
        .pipe(_by_lane)
        .sort("rank", "start_ns", "stream", maintain_order=True)
    )


def _by_lane(calls: pl.DataFrame) -> pl.DataFrame:
    """Tell messages between two ranks apart by their streams, where both ends use as many.

    A pipeline of two stages sends forwards and backwards to one peer, each way in its own order.
    """
    end = ["rank", "group_key", "operation"]
    is_message = pl.col("operation").is_in(list(POINT_TO_POINT)).fill_null(value=False)
    n_lanes = pl.when(is_message).then(pl.col("stream").n_unique().over(end))
    lane = pl.col("stream").rank("dense").over(end)
    is_told = (n_lanes > 1) & (n_lanes.min().over("group_key") == n_lanes.max().over("group_key"))
    return calls.with_columns(
        group_key=pl.when(is_told)
        .then(pl.format("{} lane {}", "group_key", lane))
        .otherwise("group_key")
    )


def _groups(calls: pl.DataFrame) -> pl.DataFrame:
    """Each group once: `group`, `listing`, its key and label, number and sum of its members."""
    members = pl.col("members")
    listed = members.cast(pl.List(pl.String)).list.join(",")
    name = pl.col("group").fill_null("")
    return (
        calls.group_by("group", "listing")
        .agg(members.first().list.sort())
        .select(
            "group",
            "listing",
            group_key=pl.coalesce(pl.format("{} [{}]", name, listed), pl.lit(NO_GROUP)),
            group_label=group_label(),
            n_members=members.list.len().cast(pl.Int64),
            sum_members=members.list.sum(),
        )
    )


def group_label() -> pl.Expr:
    """A group as a person reads it, from `group` and its sorted `members`: both name it."""
    members, name = pl.col("members"), pl.col("group").fill_null("")
    labelled = pl.format("{} ({} ranks: {})", name, members.list.len(), short_ranks(members))
    return pl.coalesce(labelled, "group", pl.lit(NOT_RECORDED))


def _ends() -> tuple[pl.Expr, pl.Expr]:
    """Sender and receiver of a point-to-point call: in a group of two the other member is the peer.

    Null for other operations, and where the peer is not known.
    """
    rank, operation = pl.col("rank"), pl.col("operation")
    other = pl.when(pl.col("n_members") == 2).then(pl.col("sum_members") - rank)
    sends, receives = operation == "send", operation == "recv"
    sender = pl.when(sends).then(rank).when(receives).then(pl.coalesce(other, "source_rank"))
    receiver = pl.when(receives).then(rank).when(sends).then(pl.coalesce(other, "destination_rank"))
    return sender, receiver


def short_ranks(members: pl.Expr) -> pl.Expr:
    """Member list as a person reads it: "0–7" for a run of numbers, else the first few."""
    first, last = members.list.first(), members.list.last()
    is_run = (last - first + 1) == members.list.len()
    few = members.list.head(6).cast(pl.List(pl.String)).list.join(", ")
    return (
        pl.when(is_run)
        .then(pl.format("{}–{}", first, last))
        .when(members.list.len() > 6)
        .then(pl.format("{}, …", few))
        .otherwise(few)
    )


def _numbered(matched: pl.DataFrame) -> pl.DataFrame:
    """Number instances by their first start; what no other rank holds is not matched.

    Neither are the calls of an instance that one rank seems to have made twice.
    """
    repeated = (
        pl.col("instance_key").is_not_null() & pl.struct("instance_key", "rank").is_duplicated()
    )
    order = (
        matched.drop_nulls("instance_key")
        .group_by("instance_key")
        .agg(pl.col("start_ns").min(), n_seen=pl.col("rank").n_unique().cast(pl.Int64))
        .filter(pl.col("n_seen") > 1)
        .sort("start_ns", "instance_key")
        .select("instance_key", "n_seen", instance=pl.int_range(pl.len(), dtype=pl.Int64))
    )
    splits = pl.col("splits_in").list.eval(pl.element().n_unique()).list.first()
    return (
        matched.with_columns(
            instance_key=pl.when(~repeated).then("instance_key"),
        )
        .join(order, on="instance_key", how="left", validate="m:1")
        .with_columns(
            n_expected=pl.when(pl.col("operation").is_in(list(POINT_TO_POINT)))
            .then(2)
            .otherwise("group_size"),
            n_seen=pl.col("n_seen").fill_null(1),
            has_even_splits=(splits <= 1).fill_null(value=True),
            match=pl.when(pl.col("instance").is_null())
            .then(pl.lit("not matched"))
            .otherwise("match"),
            group="group_label",
        )
        .select(list(INSTANCES.schema))
        .sort("instance", "rank", "start_ns", nulls_last=True)
    )
