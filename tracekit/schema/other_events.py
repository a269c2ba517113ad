"""One row per event of a category that no other table holds; nothing recorded is thrown away."""

from __future__ import annotations

from tracekit.schema.table import DUR, NAME, START, TEXT, Column, Table

OTHER_EVENTS = Table(
    "other_events",
    "event of another category",
    (START, DUR, NAME, Column("category", TEXT, "", "category as recorded")),
)
