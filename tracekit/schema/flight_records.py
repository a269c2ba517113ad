"""One row per call that a rank's flight recorder holds."""

from __future__ import annotations

import polars as pl

from tracekit.schema.table import FLAG, I64, TEXT, Column, Table

FLIGHT_RECORDS = Table(
    "flight_records",
    "collective or message that a flight recorder holds",
    (
        Column("record_id", I64, "", "number of the record on its rank, from 0"),
        Column("group", TEXT, "", "process group name"),
        Column("group_description", TEXT, "", "what the group is for, as the job says"),
        Column("members", pl.List(pl.Int64()), "", "global ranks; null when not recorded"),
        Column("sequence", I64, "", "sequence number in the group, of collectives"),
        Column("operation", TEXT, "", "all_reduce, send …; null when not known"),
        Column("name", TEXT, "", "as recorded: nccl:send 0->3"),
        Column("is_message", FLAG, "", "whether it is point-to-point"),
        Column("source_rank", I64, "", "global rank of the sender of a message"),
        Column("destination_rank", I64, "", "global rank of its receiver"),
        Column("state", TEXT, "", "scheduled, started, completed"),
        Column("is_done", FLAG, "", "completed; null where the backend does not follow states"),
        Column("created_ns", I64, "ns", "when the host called it, since the run's epoch"),
        Column("started_ns", I64, "ns", "when its start was noticed, since the run's epoch"),
        Column("completed_ns", I64, "ns", "when its end was noticed, since the run's epoch"),
        Column("timeout_ns", I64, "ns", "after which the watchdog ends the job"),
        Column("sizes_in", TEXT, "", "shapes of its inputs"),
        Column("sizes_out", TEXT, "", "shapes of its outputs"),
        Column("dtypes", TEXT, "", "element types of its inputs"),
        Column("stack", TEXT, "", "where it was called, a frame a line; null when not recorded"),
    ),
)
