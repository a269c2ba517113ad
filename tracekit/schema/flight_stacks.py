"""One row per thread of Python of a rank, where a recorder of ours noted that it hung."""

from __future__ import annotations

from tracekit.schema.table import TEXT, Column, Table

FLIGHT_STACKS = Table(
    "flight_stacks",
    "thread of Python of a rank that seemed to hang",
    (
        Column("thread", TEXT, "", "name of the thread: MainThread is the one that trains"),
        Column("stack", TEXT, "", "a frame a line, innermost first: train.py:41 step"),
    ),
)
