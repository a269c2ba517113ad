"""One row per call into the device runtime or driver."""

from __future__ import annotations

from tracekit.schema.table import (
    CORRELATION,
    DUR,
    EXTERNAL_ID,
    NAME,
    START,
    TEXT,
    THREAD,
    Column,
    Table,
)

LAUNCHES = Table(
    "launches",
    "runtime or driver call",
    (
        START,
        DUR,
        NAME,
        THREAD,
        CORRELATION,
        EXTERNAL_ID,
        Column(
            "role",
            TEXT,
            "",
            "launch, graph-launch, copy, sync, stream-wait, event-record, allocation, module-load "
            "or other",
        ),
    ),
)
