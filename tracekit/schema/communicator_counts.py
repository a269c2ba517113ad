"""One row per communicator, member and operation: how many calls NCCL's RAS counted."""

from __future__ import annotations

from tracekit.schema.table import FLAG, I64, TEXT, Column, Table

COMMUNICATOR_COUNTS = Table(
    "communicator_counts",
    "operation of a member of a communicator, as NCCL's RAS counted its calls",
    (
        Column("snapshot", I64, "", "number of the answer in its file, from 0"),
        Column("taken", TEXT, "", "when RAS answered, in the time of its host"),
        Column("communicator", TEXT, "", "hash of the communicator"),
        Column("n_members", I64, "", "ranks in it"),
        Column("member", I64, "", "rank in the communicator"),
        Column("operation", TEXT, "", "all_reduce …; null of a member that did not answer"),
        Column("n_calls", I64, "", "calls since the communicator was made"),
        Column("is_silent", FLAG, "", "whether its process did not answer"),
        Column("is_dead", FLAG, "", "whether RAS takes its process for dead"),
        Column("is_aborted", FLAG, "", "whether the communicator was aborted"),
        Column("error", I64, "", "asynchronous error, as ncclResult_t; 0 is none"),
    ),
)
