"""One row per training sample that a loop told of: its length, in the step that trained on it."""

from __future__ import annotations

from tracekit.schema.table import I64, START, TEXT, Column, Table

SAMPLES = Table(
    "samples",
    "sample of a batch, as the training loop tells",
    (
        START,
        Column("step", I64, "", "step that trains on it"),
        Column("batch", I64, "", "number of the call that told of it, within the step"),
        Column("length", I64, "", "tokens, frames or the like"),
        Column("modality", TEXT, "", "text, image, … as the loop calls it"),
    ),
)
