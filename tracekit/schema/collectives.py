"""One row per collective or point-to-point operation on one rank."""

from __future__ import annotations

import polars as pl

from tracekit.schema.table import (
    CORRELATION,
    DEVICE,
    DUR,
    FLAG,
    I64,
    NAME,
    START,
    STREAM,
    TEXT,
    Column,
    Table,
)

COLLECTIVES = Table(
    "collectives",
    "collective or point-to-point operation on one rank",
    (
        START,
        DUR,
        NAME,
        Column("group", TEXT, "", "process group name; null when not recorded"),
        Column("group_description", TEXT, "", "what the group is for, as the job says"),
        Column(
            "members", pl.List(pl.Int64()), "", "global ranks of the group; null when not known"
        ),
        Column("group_size", I64, "", "ranks in the group"),
        Column("sequence", I64, "", "sequence number in the group"),
        Column("comms_id", pl.UInt64(), "", "identifier equal on all ranks of one instance"),
        Column("operation", TEXT, "", "all_reduce, all_gather …; null when not known"),
        Column("dtype", TEXT, "", "element type as recorded"),
        Column("bytes_in", I64, "bytes", "bytes that this rank puts in"),
        Column("bytes_out", I64, "bytes", "bytes that this rank gets"),
        Column(
            "splits_in", pl.List(pl.Int64()), "", "elements sent to each member; null when even"
        ),
        Column("splits_out", pl.List(pl.Int64()), "", "elements received from each member"),
        Column("source_rank", I64, "", "sender of a receive"),
        Column("destination_rank", I64, "", "receiver of a send"),
        Column("is_async", FLAG, "", "whether the call returned before the end"),
        Column("enqueue_ns", I64, "ns", "start of the host call; null when not in the file"),
        DEVICE,
        STREAM,
        CORRELATION,
        Column("source", TEXT, "", "metadata, host call, kernel name, gloo"),
    ),
)
