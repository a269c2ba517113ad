"""One row per host operator."""

from __future__ import annotations

from tracekit.schema.table import DUR, EXTERNAL_ID, I64, NAME, START, TEXT, THREAD, Column, Table

CPU_OPS = Table(
    "cpu_ops",
    "host operator",
    (
        START,
        DUR,
        NAME,
        THREAD,
        EXTERNAL_ID,
        Column("sequence", I64, "", "autograd sequence number; joins forward and backward"),
        Column("forward_thread", I64, "", "thread of the forward operator"),
        Column("shapes", TEXT, "", "input dimensions, JSON"),
        Column("dtypes", TEXT, "", "input types, JSON"),
        Column("module", TEXT, "", "module hierarchy"),
    ),
)
