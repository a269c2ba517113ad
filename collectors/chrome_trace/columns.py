"""Events of one category → columns of the table that holds them. One function a table, no joins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.collectors.chrome_trace.events import NO_RAW
from tracekit.collectors.chrome_trace.names import copy_kind, host_memory, role_of
from tracekit.collectors.chrome_trace.timestamps import ns
from tracekit.collectors.chrome_trace.values import (
    EXTERNAL_IDS,
    first_of,
    listed,
    place,
    product,
    row_number,
    row_numbers,
    texts,
)
from tracekit.derive.kernel_kinds import kind_of
from tracekit.schema import (
    ANNOTATIONS,
    COPIES,
    CPU_OPS,
    KERNELS,
    LAUNCHES,
    MEMORY,
    OTHER_EVENTS,
    PYTHON_FRAMES,
    SYNCS,
    Table,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracekit.collectors.chrome_trace.events import Event

CATEGORIES: dict[str, str] = {
    **dict.fromkeys(("cpu_op", "Operator"), "cpu_ops"),
    **dict.fromkeys(("user_annotation", "gpu_user_annotation"), "annotations"),
    **dict.fromkeys(("kernel", "Kernel", "collective_comm", "mtia_ccp_events"), "kernels"),
    **dict.fromkeys(("gpu_memcpy", "gpu_memset", "Memcpy", "Memset"), "copies"),
    **dict.fromkeys(
        (
            "cuda_runtime",
            "cuda_driver",
            "Runtime",
            "hip_runtime",
            "xpu_runtime",
            "xpu_driver",
            "mtia_runtime",
            "glow_runtime",
            "privateuse1_runtime",
            "privateuse1_driver",
        ),
        "launches",
    ),
    **dict.fromkeys(("cuda_sync", "cuda_event", "xpu_sync"), "syncs"),
    **dict.fromkeys(("python_function",), "python_frames"),
}
"""Table of a category of complete events; categories of 2020 are spelled as today's."""


def frame(table: Table, columns: dict[str, Any]) -> pl.DataFrame:
    """Columns of one table as a frame; values of another type become null, absent columns too."""
    n_rows = len(columns["start_ns"])
    return pl.DataFrame(
        [
            _series(column.name, columns.get(column.name), column.dtype, n_rows)
            for column in table.columns
        ]
    )


def _series(name: str, values: Any, dtype: pl.DataType, n_rows: int) -> pl.Series:
    if values is None:
        return pl.Series(name, [None], dtype=dtype).new_from_index(0, n_rows)
    if isinstance(values, pl.Series):
        return values.cast(dtype, strict=False).alias(name)
    return pl.Series(name, values, dtype=dtype, strict=False)


def times(events: Sequence[Event], shift_ns: int) -> dict[str, pl.Series]:
    """Start and duration in ns since the run's epoch; null where the event has no number."""
    return {
        "start_ns": ns(listed("ts", events)) + shift_ns,
        "dur_ns": ns(listed("dur", events)),
    }


def cpu_op_rows(events: Sequence[Event], shift_ns: int) -> pl.DataFrame:
    """Host operators, in file order."""
    args = listed("args", events)
    return frame(
        CPU_OPS,
        times(events, shift_ns)
        | {
            "name": listed("name", events),
            "thread": row_numbers(listed("tid", events)),
            "external_id": first_of(args, *EXTERNAL_IDS),
            "sequence": listed("sequence", args),
            "forward_thread": listed("forward_thread", args),
            "shapes": texts(first_of(args, "shapes", "legacy_shapes", missing=NO_RAW)),
            "dtypes": texts(listed("dtypes", args)),
            "module": listed("module", args),
        },
    )


def annotation_rows(events: Sequence[Event], shift_ns: int) -> pl.DataFrame:
    """User annotations; those of category gpu_user_annotation lie on a device."""
    on_device = [event.cat == "gpu_user_annotation" for event in events]
    rows = row_numbers(listed("tid", events))
    return frame(
        ANNOTATIONS,
        times(events, shift_ns)
        | {
            "name": listed("name", events),
            "thread": [None if gpu else tid for gpu, tid in zip(on_device, rows, strict=True)],
            "stream": [tid if gpu else None for gpu, tid in zip(on_device, rows, strict=True)],
            "device": [
                row_number(event.pid) if gpu else None
                for gpu, event in zip(on_device, events, strict=True)
            ],
        },
    )


def kernel_rows(events: Sequence[Event], shift_ns: int) -> pl.DataFrame:
    """GPU kernels; `kind` comes from the name."""
    args = listed("args", events)
    names = listed("name", events)
    return frame(
        KERNELS,
        times(events, shift_ns)
        | place(events, args)
        | {
            "name": names,
            "kind": list(map(kind_of, names)),
            "graph_id": listed("graph_id", args),
            "grid_blocks": list(map(product, listed("grid", args))),
            "block_threads": list(map(product, listed("block", args))),
            "registers_per_thread": listed("registers_per_thread", args),
            "shared_memory_bytes": listed("shared_memory_bytes", args),
            "blocks_per_sm": listed("blocks_per_sm", args),
            "occupancy_share": pl.Series(
                listed("occupancy_percent", args), dtype=pl.Float64, strict=False
            )
            / 100,
        },
    )


def copy_rows(events: Sequence[Event], shift_ns: int) -> pl.DataFrame:
    """Memory copies and memsets."""
    args = listed("args", events)
    return frame(
        COPIES,
        times(events, shift_ns)
        | place(events, args)
        | {
            "name": listed("name", events),
            "kind": [
                copy_kind(event.name, str(arg.direction or ""))
                for event, arg in zip(events, args, strict=True)
            ],
            "host_memory": [host_memory(event.name) for event in events],
            "size_bytes": first_of(args, "size_bytes", "mtia_size"),
            "graph_id": listed("graph_id", args),
        },
    )


def launch_rows(events: Sequence[Event], shift_ns: int) -> pl.DataFrame:
    """Runtime and driver calls; `role` comes from the name."""
    args = listed("args", events)
    names = listed("name", events)
    return frame(
        LAUNCHES,
        times(events, shift_ns)
        | {
            "name": names,
            "thread": row_numbers(listed("tid", events)),
            "correlation": listed("correlation", args),
            "external_id": first_of(args, *EXTERNAL_IDS),
            "role": list(map(role_of, names)),
        },
    )


def sync_rows(events: Sequence[Event], shift_ns: int) -> pl.DataFrame:
    """Recorded synchronisations, event records and stream waits."""
    args = listed("args", events)
    return frame(
        SYNCS,
        times(events, shift_ns)
        | {
            "kind": [arg.sync_kind or event.name for event, arg in zip(events, args, strict=True)],
            "device": listed("device", args),
            "stream": listed("stream", args),
            "correlation": listed("correlation", args),
            "event_id": first_of(args, "wait_on_event", "event_id"),
            "wait_on_stream": listed("wait_on_stream", args),
            "wait_on_correlation": listed("wait_on_correlation", args),
            "source": ["recorded"] * len(events),
        },
    )


def python_frame_rows(events: Sequence[Event], shift_ns: int) -> pl.DataFrame:
    """Python function calls."""
    args = listed("args", events)
    return frame(
        PYTHON_FRAMES,
        times(events, shift_ns)
        | {
            "name": listed("name", events),
            "thread": row_numbers(listed("tid", events)),
            "python_id": listed("python_id", args),
            "parent_id": listed("python_parent_id", args),
        },
    )


def memory_rows(events: Sequence[Event], shift_ns: int) -> pl.DataFrame:
    """Allocator events: the `[memory]` instants."""
    args = listed("args", events)
    types = {"0": "cpu", "1": "cuda"}
    return frame(
        MEMORY,
        {
            "start_ns": ns(listed("ts", events)) + shift_ns,
            "device_type": [
                types.get(str(arg.memory_device_type), str(arg.memory_device_type)) for arg in args
            ],
            "device": listed("memory_device", args),
            "size_bytes": listed("delta_bytes", args),
            "allocated_bytes": listed("total_allocated", args),
            "reserved_bytes": listed("total_reserved", args),
        },
    )


def other_event_rows(events: Sequence[Event], shift_ns: int) -> pl.DataFrame:
    """Events of any other category."""
    return frame(
        OTHER_EVENTS,
        times(events, shift_ns)
        | {"name": listed("name", events), "category": listed("cat", events)},
    )


BUILDERS: dict[str, Callable[[Sequence[Event], int], pl.DataFrame]] = {
    "cpu_ops": cpu_op_rows,
    "annotations": annotation_rows,
    "kernels": kernel_rows,
    "copies": copy_rows,
    "launches": launch_rows,
    "syncs": sync_rows,
    "python_frames": python_frame_rows,
    "memory": memory_rows,
    "other_events": other_event_rows,
}
