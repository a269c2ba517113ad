"""A large trace made of a small one: its events again and again, each time later."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

from isal import igzip

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GAP_US = 1e5
"""Between the end of the last start of one repetition and the first of the next."""


def amplified(source: Path, target: Path, size_bytes: int) -> int:
    """Write a gzipped trace of at least `size_bytes` of JSON that repeats the events of `source`.

    Every repetition lies behind the one before and has correlations of its own, so that launches
    still find their kernels. It is laid out as the profiler does it: some lines an event.

    Returns:
        Bytes of JSON.
    """
    data = source.read_bytes()
    trace: dict[str, Any] = json.loads(gzip.decompress(data) if source.suffix == ".gz" else data)
    events = [event for event in trace.pop("traceEvents") if "ts" in event]
    times = [event["ts"] for event in events if event.get("ph") == "X"]
    span_us = max(times) - min(times) + GAP_US
    stride = max(event.get("args", {}).get("correlation", 0) for event in events) + 1
    writers = [_writer(event) for event in events]
    with igzip.open(target, "wb", compresslevel=1) as out:
        written = out.write((json.dumps(trace)[:-1] + ', "traceEvents": [').encode())
        repetition = 0
        while written < size_bytes:
            by_us, by = repetition * span_us, repetition * stride
            text = ",".join([write(by_us, by) for write in writers])
            written += out.write((("," if repetition else "") + text).encode())
            repetition += 1
        written += out.write(b"\n]}\n")
    return written


def _writer(event: dict[str, Any]) -> Callable[[float, int], str]:
    """Writes one event moved by so many µs and correlations: only the numbers are made anew."""
    args = dict(event.get("args", {}))
    correlation = args.pop("correlation", None)
    place = {key: value for key, value in event.items() if key not in {"ts", "dur", "args"}}
    start = "\n  {\n    " + json.dumps(place)[1:-1] + ',\n    "ts": '
    start_us = event["ts"]
    dur = f', "dur": {event["dur"]:.3f}' if "dur" in event else ""
    inside = json.dumps(args)[1:-1]
    if correlation is None:
        end = dur + (',\n    "args": {\n      ' + inside + "\n    }" if args else "") + "\n  }"
        return lambda by_us, _: f"{start}{start_us + by_us:.3f}{end}"
    middle = dur + ',\n    "args": {\n      "correlation": '
    end = (", " + inside if inside else "") + "\n    }\n  }"
    return lambda by_us, by: f"{start}{start_us + by_us:.3f}{middle}{correlation + by}{end}"
