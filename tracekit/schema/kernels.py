"""One row per kernel that ran on a device."""

from __future__ import annotations

from tracekit.schema.table import (
    CORRELATION,
    DEVICE,
    DUR,
    EXTERNAL_ID,
    F64,
    I64,
    NAME,
    START,
    STREAM,
    TEXT,
    Column,
    Table,
)

KERNELS = Table(
    "kernels",
    "GPU kernel",
    (
        START,
        DUR,
        NAME,
        Column("kind", TEXT, "", "gemm, attention, communication …; see derive/kernel_kinds.py"),
        DEVICE,
        STREAM,
        CORRELATION,
        EXTERNAL_ID,
        Column("graph_id", I64, "", "CUDA graph that launched it"),
        Column("grid_blocks", I64, "", "blocks of the grid"),
        Column("block_threads", I64, "", "threads of a block"),
        Column("registers_per_thread", I64, "", "registers of a thread"),
        Column("shared_memory_bytes", I64, "bytes", "shared memory of a block"),
        Column("blocks_per_sm", F64, "", "grid blocks / multiprocessors"),
        Column("occupancy_share", F64, "share", "achieved occupancy as Kineto estimates it"),
    ),
)
