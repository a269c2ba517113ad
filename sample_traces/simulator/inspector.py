"""A simulated job as NCCL Inspector sees it: a file a rank, one JSON object a collective."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING

from tracekit.sample_traces.simulator.engine import Event, simulate
from tracekit.sample_traces.simulator.operations import Collective
from tracekit.sample_traces.simulator.training import programs

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.sample_traces.simulator.job import Job

START_US = 1_758_600_000_000_000
NAMES = {
    "all_reduce": "AllReduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "broadcast": "Broadcast",
    "all_to_all": "AlltoAll",
}
SHARED = ("all_gather", "reduce_scatter", "all_to_all")
"""NCCL counts what one rank has of these."""


def write_inspector(job: Job, folder: Path) -> None:
    """Write the lines of each rank: whole µs, of the device's own clock, with time stamps."""
    for rank, events in simulate(programs(job)).items():
        numbers: dict[tuple[str, str], int] = {}
        called = [e for e in events if e.stream is not None and isinstance(e.operation, Collective)]
        lines = [_line(rank, each, numbers) for each in sorted(called, key=lambda e: e.start_ns)]
        path = folder / f"node{rank // 8}-pid{1000 + rank}.log"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _line(rank: int, event: Event, numbers: dict[tuple[str, str], int]) -> str:
    call = event.operation
    assert isinstance(call, Collective)
    group, name = call.group, NAMES[call.operation]
    number = numbers[group.name, name] = numbers.get((group.name, name), -1) + 1
    start_us, end_us = START_US + event.start_ns // 1000, START_US + event.end_ns // 1000
    size = call.size_bytes // (len(group.members) if call.operation in SHARED else 1)
    kernel = {"kernel_start_ts": start_us, "kernel_stop_ts": end_us, "kernel_record_ts": end_us}
    record = {
        "header": {
            "id": f"0x{sha256(group.name.encode()).hexdigest()[:14]}",
            "comm_name": group.name,
            "rank": group.members.index(rank),
            "n_ranks": len(group.members),
            "nnodes": 1,
        },
        "metadata": {
            "inspector_output_format_version": "v4.0",
            "git_rev": "unknown",
            "rec_mechanism": "nccl_profiler_interface",
            "dump_timestamp_us": end_us + 50,
            "hostname": f"node{rank // 8}",
            "pid": 1000 + rank,
        },
        "coll_perf": {
            "coll": name,
            "coll_sn": number,
            "coll_msg_size_bytes": size,
            "coll_exec_time_us": end_us - start_us,
            "coll_timing_source": "kernel_gpu",
            "event_trace_ts": {
                "coll_start_ts": start_us,
                "coll_stop_ts": start_us,
                "kernel_events": [{"channel_id": 0, **kernel}],
            },
        },
    }
    return json.dumps(record)
