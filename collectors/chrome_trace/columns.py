"""Events of one category → columns of the table that holds them. One function a table, no joins."""

from __future__ import annotations

import re
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.collectors.chrome_trace.events import NO_RAW
from tracekit.collectors.chrome_trace.timestamps import ns
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

MAX_SHAPES_LENGTH = 64 << 10

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

_ROLES = tuple(
    (role, re.compile(pattern, re.IGNORECASE))
    for role, pattern in (
        ("graph-launch", r"GraphLaunch"),
        ("stream-wait", r"StreamWaitEvent"),
        ("sync", r"Synchronize|EventQuery|StreamQuery|zeEventHostSync|urEventWait"),
        ("event-record", r"EventRecord"),
        ("copy", r"Memcpy|Memset|MemcpyDtoH|urEnqueueUSM"),
        (
            "allocation",
            r"Malloc|Free(?!Async)|HostAlloc|HostRegister|MemCreate|MemMap|MemRelease|Mem(?:Alloc|Free)",
        ),
        ("module-load", r"ModuleLoad|LibraryLoad|ModuleGetFunction|LinkAdd"),
        ("launch", r"Launch|runFunction|Enqueue|ExtModule"),
    )
)
_COPY_KINDS = re.compile(
    r"(HtoD|DtoH|DtoD|HtoH|PtoP|P2P|AtoD|DtoA|HOST_TO_DEVICE|DEVICE_TO_HOST)", re.IGNORECASE
)


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


def listed(name: str, things: Sequence[object]) -> list[Any]:
    """One attribute of each thing."""
    return list(map(attrgetter(name), things))


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
            "thread": [number(event.tid) for event in events],
            "external_id": external_ids(args),
            "sequence": listed("sequence", args),
            "forward_thread": listed("forward_thread", args),
            "shapes": [
                today or legacy
                for today, legacy in zip(
                    _texts("shapes", args), _texts("legacy_shapes", args), strict=True
                )
            ],
            "dtypes": _texts("dtypes", args),
            "module": listed("module", args),
        },
    )


def annotation_rows(events: Sequence[Event], shift_ns: int) -> pl.DataFrame:
    """User annotations; those of category gpu_user_annotation lie on a device."""
    on_device = [event.cat == "gpu_user_annotation" for event in events]
    numbers = [number(event.tid) for event in events]
    return frame(
        ANNOTATIONS,
        times(events, shift_ns)
        | {
            "name": listed("name", events),
            "thread": [None if gpu else tid for gpu, tid in zip(on_device, numbers, strict=True)],
            "stream": [tid if gpu else None for gpu, tid in zip(on_device, numbers, strict=True)],
            "device": [
                number(event.pid) if gpu else None
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
            "grid_blocks": [_product(arg.grid) for arg in args],
            "block_threads": [_product(arg.block) for arg in args],
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
                _copy_kind(event.name, str(arg.direction or ""))
                for event, arg in zip(events, args, strict=True)
            ],
            "host_memory": [_host_memory(event.name) for event in events],
            "size_bytes": [
                arg.mtia_size if arg.size_bytes is None else arg.size_bytes for arg in args
            ],
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
            "thread": [number(event.tid) for event in events],
            "correlation": listed("correlation", args),
            "external_id": external_ids(args),
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
            "event_id": [
                arg.event_id if arg.wait_on_event is None else arg.wait_on_event for arg in args
            ],
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
            "thread": [number(event.tid) for event in events],
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


@cache
def role_of(name: str) -> str:
    """What a runtime or driver call does, from its name."""
    return next((role for role, pattern in _ROLES if pattern.search(name)), "other")


def external_ids(args: Sequence[Any]) -> list[Any]:
    """External id under today's key or that of 2020."""
    return [arg.legacy_external_id if arg.external_id is None else arg.external_id for arg in args]


def place(events: Sequence[Event], args: Sequence[Any]) -> dict[str, list[Any]]:
    """Device, stream, correlation, external id of GPU rows; the row's place where args lack it."""
    return {
        "device": [
            number(event.pid) if arg.device is None else number(arg.device)
            for event, arg in zip(events, args, strict=True)
        ],
        "stream": [
            number(event.tid) if arg.stream is None else number(arg.stream)
            for event, arg in zip(events, args, strict=True)
        ],
        "correlation": listed("correlation", args),
        "external_id": external_ids(args),
    }


def number(value: object) -> int | None:
    """A row's place as a number: today an integer, in old files "stream 7" or "123 (python)"."""
    if type(value) is int:
        return value
    digits = re.search(r"\d+", str(value)) if value is not None else None
    return int(digits.group()) if digits else None


def _texts(name: str, args: Sequence[Any]) -> list[str | None]:
    """The JSON of one argument of each event, as text; null where it is missing or too long."""
    return [
        None
        if raw is NO_RAW or not 0 < len(text := str(raw, "utf-8", "replace")) <= MAX_SHAPES_LENGTH
        else text
        for raw in listed(name, args)
    ]


def _product(shape: object) -> int | None:
    if not isinstance(shape, list) or not shape:
        return None
    product = 1
    for size in shape:
        if not isinstance(size, int):
            return None
        product *= size
    return product


@cache
def _copy_kind(name: str, direction: str) -> str | None:
    if "memset" in name.lower() or "fillBuffer" in name:
        return "memset"
    match = _COPY_KINDS.search(f"{name} {direction}")
    if not match:
        return None
    kind = match.group().lower()
    longer = {"host_to_device": "HtoD", "device_to_host": "DtoH", "ptop": "P2P", "p2p": "P2P"}
    return longer.get(kind, kind[0].upper() + "to" + kind[-1].upper())


@cache
def _host_memory(name: str) -> str | None:
    lower = name.lower()
    return "pageable" if "pageable" in lower else "pinned" if "pinned" in lower else None
