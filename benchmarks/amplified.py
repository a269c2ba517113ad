"""A large trace made of a small one: its events again and again, each time later."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def amplified(source: Path, target: Path, size_bytes: int) -> int:
    """Write a trace of at least `size_bytes` that repeats the events of `source`; returns its size.

    Every repetition lies behind the one before and has correlations of its own, so that launches
    still find their kernels.
    """
    data = source.read_bytes()
    trace: dict[str, Any] = json.loads(gzip.decompress(data) if source.suffix == ".gz" else data)
    events = [event for event in trace["traceEvents"] if "ts" in event]
    times = [event["ts"] for event in events if event.get("ph") == "X"]
    span_us = max(times) - min(times) + 1e5
    correlations = [event.get("args", {}).get("correlation", 0) for event in events]
    stride = max(correlations) + 1
    header = {key: value for key, value in trace.items() if key != "traceEvents"}
    written = 0
    with target.open("w") as out:
        written += out.write(json.dumps(header)[:-1] + ', "traceEvents": [\n')
        repetition = 0
        while written < size_bytes:
            for event in events:
                moved = _moved(event, repetition * span_us, repetition * stride)
                comma = ",\n" if repetition or event is not events[0] else ""
                written += out.write(comma + json.dumps(moved, indent=2))
            repetition += 1
        written += out.write("\n]}\n")
    return written


def _moved(event: dict[str, Any], by_us: float, by_correlation: int) -> dict[str, Any]:
    moved = event | {"ts": round(event["ts"] + by_us, 3)}
    if "correlation" in event.get("args", {}):
        arguments = event["args"]
        moved["args"] = arguments | {"correlation": arguments["correlation"] + by_correlation}
    return moved
