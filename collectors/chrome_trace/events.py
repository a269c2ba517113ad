"""Events of one trace file, decoded in bulk: typed structs over chunks of about 4 MiB.

A chunk is cut where one event ends and the next begins. A cut inside a string or a nested object
leaves unbalanced JSON and cannot decode, so a decoded chunk is cut right; an earlier boundary is
tried then, and only after that the repair path, which leaves a half event to the next chunk.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from tracekit.collectors.chrome_trace import repair
from tracekit.collectors.chrome_trace.stream import Cut, pieces
from tracekit.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHUNK_BYTES = 4 << 20
MAX_EVENT_BYTES = 64 << 20
"""What cannot be decoded by then is given up: no event of a profiler is as large."""
EXACT_US = float(1 << 43)
"""Below 2**43 µs a double is finer than 1 ns; a larger fractional µs is read from its digits."""

_LIST_START = re.compile(rb'(?<!\\)"traceEvents"\s*:\s*\[')
_BOUNDARY = re.compile(
    rb'\}\s*,\s*(?=\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args|id|s|bp|cname|tts|scope)"\s*:)'
)
NO_RAW = msgspec.Raw(b"")

_ARGS = {
    "external_id": "External id",
    "legacy_external_id": "external id",
    "sequence": "Sequence number",
    "forward_thread": "Fwd thread id",
    "collective": "Collective name",
    "n_in": "In msg nelems",
    "n_out": "Out msg nelems",
    "group_size": "Group size",
    "dtype": "dtype",
    "splits_in": "In split size",
    "splits_out": "Out split size",
    "group": "Process Group Name",
    "group_description": "Process Group Description",
    "members": "Process Group Ranks",
    "source_rank": "Src Rank",
    "destination_rank": "Dst Rank",
    "sequence_in_group": "Seq",
    "comms_id": "Comms Id",
    "is_async": "Is asynchronized op",
    "dtypes": "Input type",
    "shapes": "Input Dims",
    "legacy_shapes": "Input dims",
    "module": "Module Hierarchy",
    "device": "device",
    "stream": "stream",
    "correlation": "correlation",
    "registers_per_thread": "registers per thread",
    "shared_memory_bytes": "shared memory",
    "blocks_per_sm": "blocks per SM",
    "grid": "grid",
    "block": "block",
    "occupancy_percent": "est. achieved occupancy %",
    "graph_id": "graph id",
    "size_bytes": "bytes",
    "python_id": "Python id",
    "python_parent_id": "Python parent id",
    "sync_kind": "cuda_sync_kind",
    "wait_on_stream": "wait_on_stream",
    "wait_on_correlation": "wait_on_cuda_event_record_corr_id",
    "wait_on_event": "wait_on_cuda_event_id",
    "event_id": "event_id",
    "total_allocated": "Total Allocated",
    "total_reserved": "Total Reserved",
    "delta_bytes": "Bytes",
    "memory_device": "Device Id",
    "memory_device_type": "Device Type",
    "direction": "direction",
    "mtia_size": "size",
}
"""Fields of `args` and their keys, about in the order in which they are written: a key is looked
for from the one before it on, so another order takes a seventh longer."""
_RAW_ARGS = {"dtypes", "shapes", "legacy_shapes", "grid", "block"}
"""Kept as the JSON they are."""

Args: Any = msgspec.defstruct(
    "Args",
    [(name, msgspec.Raw, NO_RAW) if name in _RAW_ARGS else (name, Any, None) for name in _ARGS],
    rename=_ARGS,
    frozen=True,
    gc=False,
    module=__name__,
)
NO_ARGS = Args()


class Event(msgspec.Struct, gc=False):
    """One event; `ts` and `dur` are µs, as numbers."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    args: Args = NO_ARGS


class ExactEvent(msgspec.Struct, gc=False):
    """The same event with the digits of its times, for files whose µs exceed a double."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = NO_RAW
    dur: msgspec.Raw = NO_RAW
    args: Args = NO_ARGS


@dataclass(slots=True)
class Reading:
    """What reading one file met: bytes and events read, what was lost and repaired."""

    n_bytes: int = 0
    n_events: int = 0
    n_lost: int = 0
    n_repaired_chunks: int = 0
    is_truncated: bool = False
    cut: Cut = field(default_factory=Cut)


def batches(path: Path, reading: Reading) -> Iterator[list[Event]]:
    """Yield the events of a file in its order, a chunk at a time, noting losses in `reading`.

    Raises:
        InputError: the file holds no list of events at all.
    """
    source = pieces(path, reading.cut)
    buffer = _after_list_start(path, source, reading)
    n_wanted = CHUNK_BYTES
    for piece in source:
        reading.n_bytes += len(piece)
        buffer.append(piece)
        if sum(map(len, buffer)) < n_wanted:
            continue
        data = b"".join(buffer)
        events, used = _whole_events(data, reading)
        if len(data) - used > MAX_EVENT_BYTES:
            raise InputError(f"{path}: one event is larger than {MAX_EVENT_BYTES >> 20} MiB")
        buffer = [data[used:]]
        n_wanted = max(CHUNK_BYTES, 2 * len(buffer[0]))  # no scan of the same bytes again and again
        if events:
            reading.n_events += len(events)
            yield events
    events = _last_events(b"".join(buffer), reading)
    reading.n_events += len(events)
    yield events


def _after_list_start(path: Path, source: Iterator[bytes], reading: Reading) -> list[bytes]:
    """Skip to the first event and return the bytes read beyond it."""
    seen = b""
    searched = 0
    for piece in source:
        reading.n_bytes += len(piece)
        seen += piece
        text = seen[: 1 << 10].lstrip(b"\xef\xbb\xbf \t\r\n")
        if text.startswith(b"["):
            return [seen[seen.index(b"[") + 1 :]]
        match = _LIST_START.search(seen, searched)
        if match:
            return [seen[match.end() :]]
        searched = max(0, len(seen) - (1 << 10))
        if len(seen) > MAX_EVENT_BYTES:
            break
    raise InputError(
        f"{path}: no list of events ('traceEvents') in the file"
        + (f"; {reading.cut.why}" if reading.cut.why else ""),
        hint="Is it a trace of torch.profiler (export_chrome_trace)? See: tracekit info PATH",
    )


def _whole_events(data: bytes, reading: Reading) -> tuple[list[Event], int]:
    """Decode up to the last boundary between two events; returns the events and the bytes used."""
    window = max(0, len(data) - (64 << 10))
    cuts = _seams(data, window)[-3:] or _seams(data)[-3:]
    for cut in reversed(cuts):
        try:
            last = data.rindex(b"}", 0, cut) + 1
            return decoded(b"".join((b"[", memoryview(data)[:last], b"]"))), cut  # one copy
        except repair.BROKEN:
            continue
    if not cuts:
        return [], 0
    return _repaired(data[: cuts[-1]], reading, is_last=len(data) > MAX_EVENT_BYTES // 2)


def _seams(data: bytes, start: int = 0) -> list[int]:
    """Places where an event seems to end and the next to begin."""
    return [match.end() for match in _BOUNDARY.finditer(data, start)]


def _last_events(data: bytes, reading: Reading) -> list[Event]:
    """Decode what is left at the end of the file: last events, end of the list, what follows."""
    text = data.strip(b" \t\r\n,")
    if not text:
        reading.is_truncated = True
        return []
    if text.startswith(b"]"):
        return []
    for end in repair.likely_ends(text):
        try:
            return decoded(b"[" + text[:end] + b"]")
        except repair.BROKEN:
            continue
    found = repair.list_end(text)
    reading.is_truncated = found is None
    text = text[:found]
    try:
        return decoded(b"[" + text.rstrip(b", \t\r\n") + b"]")
    except repair.BROKEN:
        return _repaired(text, reading, is_last=True)[0]


def decoded(data: bytes) -> list[Event]:
    """Decode a JSON list of events; times that a double cannot hold come back as text."""
    events = _LIST.decode(data)
    if _need_digits([event.ts for event in events]):
        return _with_digits(_EXACT_LIST.decode(data))
    return events


def _need_digits(ts: list[Any]) -> bool:
    """Whether a time has a fraction that its double does not hold."""
    with suppress(TypeError):  # one is missing, or text
        if max(ts, default=0.0) <= EXACT_US:
            return False
    return any(type(each) is float and each > EXACT_US for each in ts)


def _with_digits(events: list[ExactEvent]) -> list[Event]:
    return [
        Event(
            e.ph,
            e.cat,
            e.name,
            e.pid,
            e.tid,
            bytes(e.ts).decode() or None,
            bytes(e.dur).decode() or None,
            e.args,
        )
        for e in events
    ]


def _repaired(data: bytes, reading: Reading, *, is_last: bool) -> tuple[list[Event], int]:
    """Decode what can be decoded; returns the events and the bytes used."""
    salvage = repair.salvaged(data, _seams(data), decoded, is_last=is_last)
    reading.n_repaired_chunks += salvage.is_mended
    # The event that the end of the file cuts is no damage of its own.
    reading.n_lost += salvage.n_lost - (reading.is_truncated and salvage.n_lost > 0)
    return salvage.events, salvage.n_used


_LIST = msgspec.json.Decoder(list[Event])
_EXACT_LIST = msgspec.json.Decoder(list[ExactEvent])
