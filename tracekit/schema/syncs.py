"""One row per recorded synchronisation, event record or stream wait."""

from __future__ import annotations

from tracekit.schema.table import CORRELATION, DEVICE, DUR, I64, START, STREAM, TEXT, Column, Table

SYNCS = Table(
    "syncs",
    "synchronisation, event record or stream wait",
    (
        START,
        DUR,
        Column("kind", TEXT, "", "as recorded: Stream Sync, Event Sync, Stream Wait Event …"),
        DEVICE,
        STREAM,
        CORRELATION,
        Column("event_id", I64, "", "CUDA event"),
        Column("wait_on_stream", I64, "", "stream whose event is waited for"),
        Column("wait_on_correlation", I64, "", "call that recorded the event"),
        Column("source", TEXT, "", "recorded or inferred"),
    ),
)
