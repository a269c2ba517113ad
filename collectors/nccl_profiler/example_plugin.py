"""Events of the example plugin that comes with NCCL (plugins/profiler/example of NVIDIA/nccl).

A file a communicator and rank, a list of begins and ends. An enqueued call (category COLL or P2P)
ends when it is enqueued; how long it took is told by its channels (category GPU), in ns of the
device's clock, of which a stop of 0 was not recorded. Begins and ends nest: what lies between the
two of a call is its own. Times of events are µs since the plugin began, of the host.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tracekit.collectors._json_values import count, mapping
from tracekit.collectors.nccl_profiler.calls import MAX_RANKS, Call, Communicator
from tracekit.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MAX_BYTES = 1 << 30
CALLS = ("COLL", "P2P")
_IN_NAME = re.compile(r"_(\d+)_(\d+)\.json$")
"""NCCL_PROFILE_DUMP_FILE, then the communicator's hash and the rank in it."""
BYTES = {
    "Int8": 1,
    "Uint8": 1,
    "Float8e4m3": 1,
    "Float8e5m2": 1,
    "Float16": 2,
    "Bfloat16": 2,
    "Int32": 4,
    "Uint32": 4,
    "Float32": 4,
    "Int64": 8,
    "Uint64": 8,
    "Float64": 8,
}


@dataclass(slots=True)
class Events:
    """What a file holds: its calls, and how many have no time of the device, or are cut."""

    calls: list[Call] = field(default_factory=list)
    n_events: int = 0
    n_without_times: int = 0
    n_unread: int = 0


def read_events(path: Path) -> Events:
    """The calls of one communicator and rank.

    Raises:
        InputError: the file cannot be read, or no event of it is understood.
    """
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise InputError(f"{path}: {size:,} bytes: larger than the plugin's buffers")
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    found = Events()
    open_call: dict[str, Any] | None = None
    channels: list[tuple[int, int]] = []
    for event in _parsed(lines, found):
        found.n_events += 1
        category, values = event.get("cat"), mapping(event.get("args"))
        if category in CALLS and event.get("ph") == "b":
            open_call, channels = event, []
        elif category == "GPU" and event.get("ph") == "b":
            began, ended = count(values.get("StartGpuClk")), count(values.get("StopGpuClk"))
            if began and ended and ended >= began:
                channels.append((began, ended))
        elif category in CALLS and open_call is not None:
            _take(found, path, open_call, channels)
            open_call = None
    return found


def _parsed(lines: Iterable[str], found: Events) -> Iterable[dict[str, Any]]:
    """Events, one a line; the brackets of the list and the empty object at its end are none."""
    for line in lines:
        text = line.strip().rstrip(",")
        if text in {"", "[", "]", "{}", "{}]"}:
            continue
        try:
            event = json.loads(text)
        except (ValueError, RecursionError):
            event = None
        if isinstance(event, dict):
            yield event
        else:
            found.n_unread += 1


def _take(
    found: Events, path: Path, event: dict[str, Any], channels: list[tuple[int, int]]
) -> None:
    values = mapping(event.get("args"))
    named = _IN_NAME.search(path.name)
    rank = count(values.get("Rank"))
    key = count(values.get("CommHash")) or (int(named[1]) if named else None)
    if rank is None or key is None or rank >= MAX_RANKS:
        found.n_unread += 1
        return
    if not channels:
        found.n_without_times += 1
        return
    start_ns = min(began for began, _ in channels)
    dtype = str(values.get("Datatype") or "").removeprefix("nccl")
    n, each = count(values.get("Count")), BYTES.get(dtype.capitalize())
    found.calls.append(
        Call(
            # how many ranks there are is said nowhere: the files of the others tell
            communicator=Communicator(key=f"{key:#x}", name=None, rank=rank, n_ranks=None),
            function=str(event.get("name") or ""),
            sequence=count(values.get("SeqNum")),
            size_bytes=n * each if n is not None and each is not None else None,
            start_ns=start_ns,
            dur_ns=max(ended for _, ended in channels) - start_ns,
            peer=count(values.get("Peer")),
            dtype=dtype or None,
        )
    )
