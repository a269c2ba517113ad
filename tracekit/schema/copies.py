"""One row per memory copy or memset on a device."""

from __future__ import annotations

from tracekit.schema.table import (
    CORRELATION,
    DEVICE,
    DUR,
    EXTERNAL_ID,
    I64,
    NAME,
    START,
    STREAM,
    TEXT,
    Column,
    Table,
)

COPIES = Table(
    "copies",
    "memcpy or memset",
    (
        START,
        DUR,
        NAME,
        Column("kind", TEXT, "", "HtoD, DtoH, DtoD, P2P, HtoH, memset; null when not known"),
        Column("host_memory", TEXT, "", "pageable or pinned; null between devices"),
        DEVICE,
        STREAM,
        CORRELATION,
        EXTERNAL_ID,
        Column("size_bytes", I64, "bytes", "bytes moved or set"),
        Column("graph_id", I64, "", "CUDA graph that launched it"),
    ),
)
