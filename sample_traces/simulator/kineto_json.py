"""Simulated events → one Kineto JSON file a rank, as torch.profiler would have written it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tracekit.sample_traces.simulator.operations import (
    PROCESS,
    Begin,
    Collective,
    Copy,
    Graph,
    Group,
    HostWork,
    Kernel,
    Message,
    StreamWait,
    Synchronize,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tracekit.sample_traces.simulator.engine import Event

BASE_NS = 1_790_857_026_000_000_000
LEAD_NS = 1_000_000
"""From the profiler's start to that of the job: readers take an event at time 0 for unstamped."""
_CALLS = {"all_reduce": "allreduce", "all_gather": "_allgather_base", "all_to_all": "all_to_allv"}
_CALLS |= {"reduce_scatter": "_reduce_scatter_base", "broadcast": "broadcast"}
_KERNELS = {"all_reduce": "AllReduce_Sum_bf16_RING_LL", "all_gather": "AllGather_RING_LL"}
_KERNELS |= {"reduce_scatter": "ReduceScatter_Sum_bf16_RING_LL", "broadcast": "Broadcast_RING_LL"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """How the job is recorded: clocks of hosts, what the profiler writes, when it starts.

    `gpu_models` are those of ranks with another one than `gpu_model`, `hosts` names those of ranks.
    """

    world_size: int
    groups: tuple[Group, ...]
    gpu_model: str = "NVIDIA H100 80GB HBM3"
    gpu_models: dict[int, str] = field(default_factory=dict)
    n_sms: int = 132
    offset_ns: dict[int, int] = field(default_factory=dict)
    drift_ppm: dict[int, float] = field(default_factory=dict)
    has_metadata: bool = True
    has_sequence: bool = True
    flags: tuple[str, ...] = ()
    hosts: dict[int, str] = field(default_factory=dict)


def write_kineto(events: dict[int, list[Event]], folder: Path, recording: Recording) -> None:
    """Write `rank<r>.json` for each rank into a folder that exists."""
    for rank, everything in events.items():
        happened = [event for event in everything if event.thread < PROCESS]
        trace = {
            "schemaVersion": 1,
            "deviceProperties": _devices(rank, recording),
            "distributedInfo": _distributed(rank, recording),
            **dict.fromkeys(recording.flags, 1),
            **({"host_name": recording.hosts[rank]} if rank in recording.hosts else {}),
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": BASE_NS,
            "traceEvents": list(_rows(rank, happened, recording)),
            "traceName": f"rank{rank}.json",
        }
        (folder / f"rank{rank}.json").write_text(json.dumps(trace, indent=1))


def _devices(rank: int, recording: Recording) -> list[dict[str, Any]]:
    return [
        {
            "id": 0,
            "name": recording.gpu_models.get(rank, recording.gpu_model),
            "numSms": recording.n_sms,
            "totalGlobalMem": 80 << 30,
        }
    ]


def _distributed(rank: int, recording: Recording) -> dict[str, Any]:
    return {
        "backend": "nccl",
        "rank": rank,
        "world_size": recording.world_size,
        "pg_count": len(recording.groups),
        "pg_config": [
            {
                "pg_name": group.name,
                "pg_desc": group.purpose,
                "backend_config": "cuda:nccl",
                "pg_size": len(group.members),
                "ranks": list(group.members),
            }
            for group in recording.groups
        ],
        "nccl_version": "2.27.3",
    }


def _rows(rank: int, happened: list[Event], recording: Recording) -> Iterator[dict[str, Any]]:
    pid = 1000 + rank
    drift = 1 + recording.drift_ppm.get(rank, 0.0) * 1e-6
    offset_ns = recording.offset_ns.get(rank, 0)

    def place(event: Event) -> dict[str, Any]:
        start_ns, end_ns = (
            LEAD_NS + round(at_ns * drift) + offset_ns for at_ns in (event.start_ns, event.end_ns)
        )
        return {"ts": start_ns / 1000, "dur": (end_ns - start_ns) / 1000}

    yield {
        "ph": "M",
        "name": "process_name",
        "pid": pid,
        "tid": 0,
        "ts": 0.001,
        "args": {"name": "python"},
    }
    n_calls: dict[str, int] = {}
    for number, event in enumerate(happened, start=1):
        row = _row(rank, pid, number, event, n_calls, recording)
        if row is not None:
            yield {"ph": "X", **row, **place(event)}
    first = min(event.start_ns for event in happened)
    last = max(event.end_ns for event in happened)
    span = {
        "name": "PyTorch Profiler (0)",
        "cat": "Trace",
        "pid": "Spans",
        "tid": "PyTorch Profiler",
    }
    start_us = (LEAD_NS + round(first * drift) + offset_ns) / 1000
    yield {"ph": "X", **span, "ts": start_us, "dur": (last - first) * drift / 1000 + 1, "args": {}}


def _row(
    rank: int, pid: int, number: int, event: Event, n_calls: dict[str, int], recording: Recording
) -> dict[str, Any] | None:
    """One event; None for what a profiler does not see."""
    host = {"pid": pid, "tid": event.thread}
    operation = event.operation
    if event.stream is not None:
        return _device_row(rank, event, n_calls, recording)
    match operation:
        case Begin() | HostWork():
            if operation.category is None:
                return None
            category = {"annotation": "user_annotation", "runtime": "cuda_runtime"}
            kind = category.get(operation.category, operation.category)
            return {"cat": kind, "name": operation.name, **host, "args": {"External id": number}}
        case Synchronize():
            of_all = "cudaDeviceSynchronize"
            name = operation.call or (
                of_all if operation.stream is None else "cudaStreamSynchronize"
            )
        case StreamWait():
            name = "cudaStreamWaitEvent"
        case Graph():
            name = "cudaGraphLaunch"
        case Copy():
            name = "cudaMemcpyAsync"
        case _:
            name = "cudaLaunchKernel"
    arguments = {"correlation": event.correlation, "cbid": 211}
    return {"cat": "cuda_runtime", "name": name, **host, "args": arguments}


def _device_row(
    rank: int, event: Event, n_calls: dict[str, int], recording: Recording
) -> dict[str, Any]:
    operation = event.operation
    place = {"device": 0, "stream": event.stream, "correlation": event.correlation, "context": 1}
    host = {"pid": 0, "tid": event.stream}
    match operation:
        case Copy():
            name = f"Memcpy {operation.kind} ({'Pinned' if operation.is_pinned else 'Pageable'})"
            arguments = place | {"bytes": operation.size_bytes}
            return {"cat": "gpu_memcpy", "name": name, **host, "args": arguments}
        case Collective() | Message():
            return {
                "cat": "kernel",
                "name": _kernel_name(operation),
                **host,
                "args": place | _metadata(rank, operation, n_calls, recording),
            }
        case Kernel():
            shape = {"grid": [operation.n_blocks, 1, 1], "block": [256, 1, 1]}
            per_sm = {"blocks per SM": operation.n_blocks / recording.n_sms}
            return {"cat": "kernel", "name": operation.name, **host, "args": place | shape | per_sm}
    raise TypeError(f"{operation} does not run on a device")


def _kernel_name(operation: Collective | Message) -> str:
    short = (
        _KERNELS.get(operation.operation, "SendRecv")
        if isinstance(operation, Collective)
        else "SendRecv"
    )
    return f"ncclDevKernel_{short}(ncclDevKernelArgsStorage<4096ul>)"


def _metadata(
    rank: int, operation: Collective | Message, n_calls: dict[str, int], recording: Recording
) -> dict[str, Any]:
    """What NCCL's process group writes of a call, with elements of two bytes."""
    if not recording.has_metadata:
        return {}
    group = operation.group
    number = n_calls[group.name] = n_calls.get(group.name, 0) + 1
    n_in = n_out = operation.size_bytes // 2
    if isinstance(operation, Collective):
        call = _CALLS.get(operation.operation, operation.operation)
        n_out *= len(group.members) if operation.operation == "all_gather" else 1
        peers: dict[str, Any] = {}
    else:
        call = "send" if operation.is_send else "recv"
        peers = {"Dst Rank": operation.peer} if operation.is_send else {"Src Rank": operation.peer}
    return {
        "Collective name": call,
        "dtype": "BFloat16",
        "In msg nelems": n_in,
        "Out msg nelems": n_out,
        "Group size": len(group.members),
        "Process Group Name": group.name,
        "Process Group Description": group.purpose,
        "Process Group Ranks": str(list(group.members)),
        "Rank": rank,
        **peers,
        **({"Seq": number} if recording.has_sequence else {}),
    }
