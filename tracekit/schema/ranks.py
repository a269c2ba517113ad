"""One row per rank and device that its process saw."""

from __future__ import annotations

from tracekit.schema.table import DEVICE, FLAG, I64, TEXT, Column, Table

RANKS = Table(
    "ranks",
    "rank and device that its process saw",
    (
        DEVICE,
        Column("gpu_model", TEXT, "", "device name"),
        Column("sm_count", I64, "", "multiprocessors"),
        Column("memory_bytes", I64, "bytes", "device memory"),
        Column("is_used", FLAG, "", "whether this rank ran anything on it"),
    ),
)
