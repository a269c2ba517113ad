"""One row per Python function call, where stacks were recorded."""

from __future__ import annotations

from tracekit.schema.table import DUR, I64, NAME, START, THREAD, Column, Table

PYTHON_FRAMES = Table(
    "python_frames",
    "Python function call",
    (
        START,
        DUR,
        NAME,
        THREAD,
        Column("python_id", I64, "", "identifier of the call"),
        Column("parent_id", I64, "", "identifier of the caller; null at the root"),
    ),
)
