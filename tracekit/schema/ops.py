"""One row per coarse operation of a rank, as pipeline schedules and step timers record them."""

from __future__ import annotations

from tracekit.schema.table import DUR, I64, TEXT, Column, Table

OPS = Table(
    "ops",
    "coarse operation (pipeline or step-timer traces)",
    (
        Column("start_ns", I64, "ns", "start, since the start of its step"),
        Column("end_ns", I64, "ns", "end, since the start of its step, as the source rounds it"),
        DUR,
        Column("step", I64, "", "training step"),
        Column("dp", I64, "", "data-parallel rank of the worker"),
        Column("stage", I64, "", "pipeline stage of the worker"),
        Column("type", TEXT, "", "forward-compute, backward-send, grads-reduce-scatter, …"),
        Column("sequence", I64, "", "number among the operations of its type, step and worker"),
        Column("chunk", I64, "", "model chunk within the stage; null where it has none"),
        Column("model_chunk", I64, "", "model chunk within the model; null where it has none"),
        Column("micro_batch", I64, "", "micro-batch; null where it has none"),
    ),
)
