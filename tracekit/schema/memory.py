"""One row per allocator event."""

from __future__ import annotations

from tracekit.schema.table import DEVICE, I64, START, TEXT, Column, Table

MEMORY = Table(
    "memory",
    "allocator event",
    (
        START,
        Column("device_type", TEXT, "", "cpu, cuda or the recorded number"),
        DEVICE,
        Column("size_bytes", I64, "bytes", "allocated, negative when freed"),
        Column("allocated_bytes", I64, "bytes", "allocated after the event"),
        Column("reserved_bytes", I64, "bytes", "reserved after the event"),
    ),
)
