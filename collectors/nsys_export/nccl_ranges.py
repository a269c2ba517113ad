"""Communication in an export: kernels of NCCL, and the ranges that say what they carry.

NCCL's own ranges name the call (ncclAllReduce); where the export holds their payload as JSON
(`nsys export --include-json true`), it gives the message's size.
"""

from __future__ import annotations

import json
from functools import cache

import polars as pl

from tracekit.collectors.chrome_trace.communication import CALLS
from tracekit.collectors.nsys_export.rows import THREAD_MASK, operation_names
from tracekit.derive.kernel_kinds import COMMUNICATION

SIZE = "message size"
"""How NCCL's payload names the bytes of a call ("Message size [bytes]")."""
MAX_BYTES = 1 << 50
MAX_JSON = 1 << 16


def kernels(table: pl.DataFrame) -> pl.DataFrame:
    """The kernels that communicate, as calls to be described."""
    chosen = table.filter(pl.col("kind") == COMMUNICATION)
    return _calls(chosen, source=pl.lit("kernel"))


def ranges(spans: pl.DataFrame, shift_ns: int) -> pl.DataFrame:
    """The ranges around calls of NCCL, named as torch names its own."""
    operations = operation_names(spans["label"].unique().to_list())
    chosen = spans.filter(pl.col("label").is_in(list(operations)))
    operation = pl.col("label").replace_strict(operations, default=None, return_dtype=pl.String)
    return _calls(
        chosen,
        start_ns=pl.col("start") + shift_ns,
        dur_ns=pl.col("end") - pl.col("start"),
        name=pl.lit("nccl:") + operation,
        operation=operation,
        bytes_in=pl.col("payload").map_elements(_size_bytes, return_dtype=pl.Int64),
        thread=pl.col("globalTid") & THREAD_MASK,
        source=pl.lit("annotation"),
    )


def _calls(rows: pl.DataFrame, **columns: pl.Expr) -> pl.DataFrame:
    return rows.select(
        (
            columns[column.name]
            if column.name in columns
            else pl.col(column.name)
            if column.name in rows.columns
            else pl.lit(None)
        )
        .cast(column.dtype)
        .alias(column.name)
        for column in CALLS.columns
    )


@cache
def _size_bytes(payload: str) -> int | None:
    """Size of a message by its payload, null where it does not say it."""
    if len(payload) > MAX_JSON:
        return None
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    items = found.items() if isinstance(found, dict) else ()
    sizes = [value for key, value in items if key.lower().startswith(SIZE)]
    size = sizes[0] if sizes else None
    return size if isinstance(size, int) and 0 <= size < MAX_BYTES else None
