"""One row per recorded step mark of one rank; marks are inferred later where none is recorded."""

from __future__ import annotations

from tracekit.schema.table import DUR, I64, START, TEXT, Column, Table

STEPS = Table(
    "steps",
    "recorded step mark",
    (
        Column("step", I64, "", "number of the step, as the trace counts"),
        START,
        DUR,
        Column("source", TEXT, "", "ProfilerStep, ProfilerStep on the device, annotation"),
    ),
)
