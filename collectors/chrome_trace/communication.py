"""The `collectives` table of one rank: kernels and gloo calls joined to what the host called.

The operation is what the host called: metadata on the kernel, else the call over its launch
(`record_param_comms` with metadata, `nccl:*`, `c10d::*`), else the kernel's name.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.collectors.chrome_trace.columns import frame, times
from tracekit.collectors.chrome_trace.heading import Group, members, numbers
from tracekit.collectors.chrome_trace.values import listed, place, row_numbers
from tracekit.derive.kernel_kinds import COMMUNICATION, kind_of, operation_of
from tracekit.schema import COLLECTIVES
from tracekit.schema.table import I64, TEXT, Column, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.collectors.chrome_trace.events import Event

RECORD = "record_param_comms"
MAX_ELEMENTS = 1 << 48
_PREFIXES = ("nccl:", "gloo:", "c10d::", "_c10d_functional::")
_SIZES_BYTES = {
    **dict.fromkeys(("float", "float32", "int", "int32", "unsigned int", "uint32"), 4),
    **dict.fromkeys(("half", "float16", "bfloat16", "short", "int16", "uint16"), 2),
    **dict.fromkeys(("double", "float64", "long", "long int", "int64", "uint64"), 8),
    **dict.fromkeys(("byte", "char", "bool", "int8", "uint8", "signed char", "unsigned char"), 1),
    "complexfloat": 8,
    "complexdouble": 16,
}
_METADATA = (
    "group",
    "group_description",
    "members",
    "group_size",
    "sequence",
    "comms_id",
    "operation",
    "dtype",
    "bytes_in",
    "bytes_out",
    "splits_in",
    "splits_out",
    "source_rank",
    "destination_rank",
    "is_async",
)
CALLS = Table(
    "communication calls",
    "kernel, host operator or annotation that communicates",
    (
        *tuple(
            column for column in COLLECTIVES.columns if column.name not in ("enqueue_ns", "source")
        ),
        Column("thread", I64, "", "host thread"),
        Column("source", TEXT, "", "where it stood"),
    ),
)


def rows(table: str, events: Sequence[Event], shift_ns: int) -> pl.DataFrame | None:
    """The events of one table that communicate, with their metadata; None where none does."""
    source = {"kernels": "kernel", "cpu_ops": "host call", "annotations": "annotation"}.get(table)
    if source is None:
        return None
    names = set(listed("name", events))  # few of them, each on many events
    if source == "kernel":
        named = {name for name in names if kind_of(name) == COMMUNICATION}
    else:
        named = {name for name in names if name == RECORD or name.startswith(_PREFIXES)}
    found = [
        event
        for event in (events if named else ())
        if event.name in named and event.cat != "gpu_user_annotation"
    ]
    if not found:
        return None
    if source == "kernel":
        where = place(found, listed("args", found))
    else:
        where = {"thread": row_numbers(listed("tid", found))}
    columns = times(found, shift_ns) | where | _metadata(found)
    return frame(
        CALLS,
        columns | {"name": listed("name", found), "source": [source] * len(found)},
    )


def collectives(
    calls: list[pl.DataFrame], launches: list[pl.DataFrame], groups: tuple[Group, ...]
) -> pl.DataFrame:
    """All collectives of one rank, sorted by start, then stream.

    Args:
        calls: frames of `rows`.
        launches: start_ns, thread and correlation of every runtime call.
        groups: the process groups of the file's heading, for member lists the events cut.
    """
    if not calls:
        return COLLECTIVES.empty()
    everything = pl.concat(calls)
    kernels = everything.filter(pl.col("source") == "kernel").drop("thread").sort("start_ns")
    host = everything.filter(pl.col("source") != "kernel").sort("start_ns")
    kernels = _with_launch(kernels, launches)
    for described in (
        host.filter((pl.col("name") == RECORD) & pl.col("operation").is_not_null()),
        host.filter(pl.col("name").str.starts_with("nccl:") & pl.col("operation").is_not_null()),
        host.filter(pl.col("name").str.contains("c10d") & pl.col("operation").is_not_null()),
    ):
        kernels = _described(kernels, described)
    by_name = pl.col("name").replace_strict(
        {name: operation_of(name) for name in kernels["name"].unique()}, return_dtype=pl.String
    )
    kernels = kernels.with_columns(
        source=pl.when(pl.col("source") == "kernel")
        .then(pl.lit("kernel name"))
        .otherwise("source"),
        operation=pl.coalesce("operation", by_name),
    )
    table = pl.concat([_columns(kernels), _columns(_gloo(host))])
    return _with_members(table, groups).sort("start_ns", "stream", maintain_order=True)


def _with_launch(kernels: pl.DataFrame, launches: list[pl.DataFrame]) -> pl.DataFrame:
    """Add thread and enqueue_ns of the call that launched each kernel; null where it is missing."""
    kernels = kernels.with_columns(
        source=pl.when(pl.col("operation").is_not_null())
        .then(pl.lit("metadata"))
        .otherwise("source")
    )
    if not launches:
        nothing = pl.lit(None, dtype=pl.Int64)
        return kernels.with_columns(thread=nothing, enqueue_ns=nothing)
    first = (
        pl.concat(launches)
        .drop_nulls("correlation")
        .join(kernels.select("correlation").unique(), on="correlation", how="semi")
        .sort("start_ns")
        .group_by("correlation", maintain_order=True)
        .first()
        .select("correlation", "thread", enqueue_ns="start_ns")
    )
    return kernels.join(first, on="correlation", how="left", validate="m:1", maintain_order="left")


def _described(kernels: pl.DataFrame, host: pl.DataFrame) -> pl.DataFrame:
    """Take metadata from the host call that covers the launch, where the kernel has none yet."""
    if host.is_empty() or kernels.is_empty():
        return kernels
    fields = {f"host_{name}": pl.col(name) for name in _METADATA}
    over = host.select(
        pl.col("thread"),
        host_start_ns=pl.col("start_ns"),
        host_end_ns=pl.col("start_ns") + pl.col("dur_ns"),
        **fields,
    ).sort("host_start_ns")
    joined = (
        kernels.with_row_index("row")
        .sort("enqueue_ns", nulls_last=True)
        .join_asof(
            over,
            left_on="enqueue_ns",
            right_on="host_start_ns",
            by="thread",
            strategy="backward",
            check_sortedness=False,
        )
        .sort("row")
    )
    is_taken = (pl.col("source") == "kernel") & (pl.col("enqueue_ns") < pl.col("host_end_ns"))
    is_taken = is_taken.fill_null(value=False)
    return joined.with_columns(
        *(
            pl.when(is_taken).then(pl.coalesce(f"host_{name}", name)).otherwise(name).alias(name)
            for name in _METADATA
        ),
        enqueue_ns=pl.when(is_taken).then("host_start_ns").otherwise("enqueue_ns"),
        source=pl.when(is_taken).then(pl.lit("host call")).otherwise("source"),
    ).drop("row", "host_start_ns", "host_end_ns", *fields)


def _gloo(host: pl.DataFrame) -> pl.DataFrame:
    """Gloo's own calls: their span on a worker thread is the transfer; the thread is the stream."""
    calls = host.filter(pl.col("name").str.starts_with("gloo:"))
    return calls.with_columns(
        stream=pl.col("thread"), enqueue_ns=pl.lit(None, dtype=pl.Int64), source=pl.lit("gloo")
    )


def _columns(table: pl.DataFrame) -> pl.DataFrame:
    return table.select(list(COLLECTIVES.schema))


def _with_members(table: pl.DataFrame, groups: tuple[Group, ...]) -> pl.DataFrame:
    """Complete group, member lists and descriptions from the heading.

    Where the job has one group, a collective without a recorded group belongs to it.
    """
    if len(groups) == 1:
        table = table.with_columns(group=pl.coalesce("group", pl.lit(groups[0].name)))
    known = pl.DataFrame(
        {
            "group": [group.name for group in groups],
            "listed": [list(group.members) if group.members else None for group in groups],
            "described": [group.description or None for group in groups],
        },
        schema={"group": pl.String, "listed": pl.List(pl.Int64), "described": pl.String},
    ).unique("group", keep="none")
    return (
        table.join(known, on="group", how="left", validate="m:1", maintain_order="left")
        .with_columns(
            members=pl.coalesce("members", "listed"),
            group_description=pl.coalesce("group_description", "described"),
        )
        .with_columns(
            group_size=pl.coalesce("group_size", pl.col("members").list.len().cast(pl.Int64))
        )
        .drop("listed", "described")
    )


def _metadata(events: Sequence[Event]) -> dict[str, list[Any]]:
    args = listed("args", events)
    sizes = [_size_bytes(str(arg.dtype)) for arg in args]
    inputs = [
        _bytes(arg.n_in, size)
        if arg.n_in is not None
        else _input_bytes(bytes(arg.shapes), bytes(arg.dtypes))
        for arg, size in zip(args, sizes, strict=True)
    ]
    return {
        "group": [None if arg.group is None else str(arg.group) for arg in args],
        "group_description": listed("group_description", args),
        "members": [_members(arg.members) for arg in args],
        "group_size": listed("group_size", args),
        "sequence": listed("sequence_in_group", args),
        "comms_id": listed("comms_id", args),
        "operation": [
            operation_of(str(arg.collective)) if arg.collective is not None else _called(event.name)
            for event, arg in zip(events, args, strict=True)
        ],
        "dtype": [None if arg.dtype is None else str(arg.dtype) for arg in args],
        "bytes_in": inputs,
        "bytes_out": [_bytes(arg.n_out, size) for arg, size in zip(args, sizes, strict=True)],
        "splits_in": [_splits(arg.splits_in) for arg in args],
        "splits_out": [_splits(arg.splits_out) for arg in args],
        "source_rank": listed("source_rank", args),
        "destination_rank": listed("destination_rank", args),
        "is_async": [None if arg.is_async is None else bool(arg.is_async) for arg in args],
    }


def _called(name: str) -> str | None:
    """Operation of a host call; a kernel's name is asked last, after the host."""
    return operation_of(name) if name.startswith(_PREFIXES) else None


@cache
def _size_bytes(dtype: str) -> int | None:
    name = dtype.lower().removeprefix("c10::").removeprefix("torch.")
    return 1 if "float8" in name or "e4m3" in name or "e5m2" in name else _SIZES_BYTES.get(name)


def _bytes(count: object, size_bytes: int | None) -> int | None:
    return count * size_bytes if isinstance(count, int) and size_bytes else None


@cache
def _input_bytes(shapes: bytes, dtypes: bytes) -> int | None:
    """Bytes of the inputs of a gloo call from its recorded shapes and types."""
    try:
        dims, names = json.loads(shapes or b"[]"), json.loads(dtypes or b"[]")
        total = 0
        for dim, name in zip(dims, names, strict=True):
            size = _size_bytes(name)
            if not dim or size is None:
                continue
            count = 1
            for length in dim:
                count *= int(length)
            total += count * size
    except (ValueError, TypeError):
        return None
    return total or None


def _members(listing: object) -> list[int] | None:
    found = _parsed_members(listing) if isinstance(listing, str) else members(listing)
    return list(found) if found else None


_parsed_members = cache(members)


def _splits(listing: object) -> list[int] | None:
    """Elements for each member; null where the call does not split or the text was cut."""
    found = numbers(listing, MAX_ELEMENTS)
    return list(found) if found else None
