"""What the host did, from the name of an operator, annotation or call: the classes of idle time."""

from __future__ import annotations

import polars as pl

INPUT_PIPELINE, CHECKPOINT, COLLECTION = "input-pipeline", "checkpoint", "garbage-collection"
ALLOCATOR, COMPILATION, CPU_OPTIMIZER = "allocator", "compilation", "cpu-optimizer"
HOST_SYNC, LAUNCH_OVERHEAD, HOST_OTHER = "host-sync", "launch-overhead", "host-other"

_PATTERNS: tuple[tuple[str, str], ...] = (
    (
        INPUT_PIPELINE,
        r"(?i)dataloader.*__next__|dataloader_next|enumerate\(dataloader|data_?load|next_batch",
    ),
    (COLLECTION, r"(?i)^(?:python )?gc\b|^tracekit\.gc\b|garbage"),
    (CHECKPOINT, r"(?i)checkpoint.*(?:save|write)|torch\.save|save_checkpoint"),
    (
        COMPILATION,
        r"(?i)torchdynamo|dynamo.*compile|inductor.*compile|_compile_fx|triton.*compile",
    ),
    (CPU_OPTIMIZER, r"(?i)cpu_?adam|cpu_?optimizer|DeepSpeedCPU"),
)

CLASSES = (*(name for name, _ in _PATTERNS), ALLOCATOR)
"""Causes that have a name of their own, in the order in which they are asked."""
NO_WORK = (INPUT_PIPELINE, CHECKPOINT, COLLECTION)
"""Classes that feed, save or clean up: no compute where the training thread stands for a device."""


def class_of() -> pl.Expr:
    """Class of a host operator or annotation by its `name`; null where it has none of its own."""
    return pl.coalesce(
        *(
            pl.when(pl.col("name").str.contains(pattern)).then(pl.lit(name))
            for name, pattern in _PATTERNS
        )
    )


SHORT_ALLOCATION_NS = 1_000_000
PAUSE_NS = 10_000_000


def host_class() -> pl.Expr:
    """What the host did in an idle part: a named class of work, else the part's cause.

    A call that drains the queue owns the idle time, but where the host then loads data, it is the
    loading that it should do sooner. Short allocations after such a call only prepare what is
    launched next. A pause of 10 ms in nothing that was recorded is none of the call's either: the
    host would launch at once.
    """
    meanwhile = pl.col("meanwhile")
    is_pause = (meanwhile == HOST_OTHER) & (pl.col("dur_ns") >= PAUSE_NS)
    is_preparing = (
        (meanwhile == ALLOCATOR)
        & (pl.col("cause") != ALLOCATOR)
        & (pl.col("dur_ns") < SHORT_ALLOCATION_NS)
    )
    is_named = meanwhile.is_in(CLASSES) & ~is_preparing
    return pl.when(is_named | is_pause).then(meanwhile).otherwise("cause")
