"""One row per process group of a rank, with how far the rank got in it."""

from __future__ import annotations

import polars as pl

from tracekit.schema.table import I64, TEXT, Column, Table

FLIGHT_GROUPS = Table(
    "flight_groups",
    "process group of a rank, as its flight recorder knows it",
    (
        Column("group", TEXT, "", "process group name"),
        Column("group_description", TEXT, "", "what the group is for, as the job says"),
        Column("members", pl.List(pl.Int64()), "", "global ranks; null when not recorded"),
        Column("last_enqueued", I64, "", "last sequence number that the host called"),
        Column("last_completed", I64, "", "last one that was noticed to have ended"),
        Column("written_ns", I64, "ns", "when the file of the dump was last changed"),
    ),
)
