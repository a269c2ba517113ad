"""Lines of NCCL Inspector (NCCL ≥ 2.28): one JSON object a call that has ended.

Format: plugins/profiler/inspector of NVIDIA/nccl, output v4.0. Sizes are what the call counts, of
one rank; times are whole µs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tracekit.collectors._json_values import count, listing, mapping
from tracekit.collectors.nccl_profiler.calls import MAX_RANKS, Call, Communicator
from tracekit.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

US = 1_000
MAX_LINE_BYTES = 1 << 20
"""A line with the events of 128 channels takes 20 kB."""
ON_DEVICE = ("kernel_gpu", "kernel_cpu")
"""`kernel_gpu` is the device's own clock, `kernel_cpu` when a thread of the host noticed it."""
TIMED_BY_HOST = "kernel_cpu"


@dataclass(slots=True)
class Lines:
    """What a file of one process holds: its calls, and what was passed over and why."""

    calls: list[Call] = field(default_factory=list)
    host: str | None = None
    n_lines: int = 0
    n_unread: int = 0
    n_of_host: int = 0
    n_noticed: int = 0
    n_without_times: int = 0


def is_line(line: bytes) -> bool:
    """Whether it is a line of the Inspector, or begins like one."""
    return line.lstrip().startswith(b'{"header"') and b'"inspector_output_format_version"' in line


def read_lines(path: Path) -> Lines:
    """The calls of one process.

    Raises:
        InputError: the file cannot be read.
    """
    found = Lines()
    try:
        with path.open("rb") as file:
            while line := file.readline(MAX_LINE_BYTES):
                if line.strip():
                    found.n_lines += 1
                    _take(found, line)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    return found


def _take(found: Lines, line: bytes) -> None:
    """Add what one line says; one that was cut or is of something else is counted."""
    try:
        record = mapping(json.loads(line)) if is_line(line) else {}
    except (ValueError, RecursionError):
        record = {}
    told = mapping(record.get("metadata"))
    group = _communicator(mapping(record.get("header")))
    perf = mapping(record.get("coll_perf") or record.get("p2p_perf"))
    dur_us = count(perf.get(_named(perf, "exec_time_us")))
    if group is None or dur_us is None:
        found.n_unread += 1
        return
    if found.host is None and isinstance(told.get("hostname"), str):
        found.host = told["hostname"]
    source = perf.get(_named(perf, "timing_source"))
    if source not in ON_DEVICE:  # the host's time of the call, which ends when it is enqueued
        found.n_of_host += 1
        return
    found.n_noticed += source == TIMED_BY_HOST
    call = _call(group, perf, dur_us, written_us=count(told.get("dump_timestamp_us")))
    found.n_without_times += call.enqueue_ns is None
    found.calls.append(call)


def _call(group: Communicator, perf: dict[str, Any], dur_us: int, written_us: int | None) -> Call:
    stamps = mapping(perf.get("event_trace_ts"))
    begins_us = [
        at
        for event in listing(stamps.get("kernel_events"))
        if (at := count(mapping(event).get("kernel_start_ts")))
    ]
    enqueued_us = count(stamps.get(_named(stamps, "start_ts")))
    # without stamps the order of the lines is all there is
    start_us = min(begins_us, default=enqueued_us or max((written_us or 0) - dur_us, 0))
    return Call(
        communicator=group,
        function=str(perf.get("coll") or perf.get("p2p") or ""),
        sequence=count(perf.get(_named(perf, "sn"))),
        size_bytes=count(perf.get(_named(perf, "msg_size_bytes"))),
        start_ns=start_us * US,
        dur_ns=dur_us * US,
        enqueue_ns=None if enqueued_us is None else enqueued_us * US,
        peer=count(perf.get("p2p_peer")),
    )


def _named(values: dict[str, Any], name: str) -> str:
    """The key of a collective or of a message."""
    return f"p2p_{name}" if f"p2p_{name}" in values else f"coll_{name}"


def _communicator(header: dict[str, Any]) -> Communicator | None:
    rank, n_ranks = count(header.get("rank")), count(header.get("n_ranks"))
    key, name = header.get("id"), header.get("comm_name")
    if rank is None or n_ranks is None or not rank < n_ranks <= MAX_RANKS or key is None:
        return None
    named = name if isinstance(name, str) and name not in {"", "(null)", "unknown"} else None
    return Communicator(key=str(key)[:32], name=named and named[:64], rank=rank, n_ranks=n_ranks)
