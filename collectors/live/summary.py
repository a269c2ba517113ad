"""A summary of every step without a profiler: how often its parts ran and how long they took.

Parts are spans of the training thread: calls of the largest modules, the optimizer, the data
loader, collections of garbage. What a device took for a step is in the line of a later one, with
the number of the step it is of: no line waits for a device. One line of JSON a step and rank, of
at most 20 KB, in two files of bounded size, so that it can stay on for weeks.
"""

from __future__ import annotations

import json
import resource
import time
from collections import defaultdict
from functools import lru_cache
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.collectors.live.device_times import DeviceStep

MAX_PARTS = 64
"""Names in one line, and below of those timed on the device.

With 150 letters each it stays below 20 KB.
"""
MAX_DEVICE_PARTS = 24
MAX_NAME = 150
"""Letters of a name; of a longer one its end is kept, which says more of a path of modules."""
MAX_FILE_BYTES = 8 << 20
"""Then the file becomes `.old` and a new one begins: two of them hold days of steps."""
FLUSH_S = 0.01
"""How long a line may wait: a rank that hangs shows its last step, and a write costs some 10 µs."""
_JSON = json.JSONEncoder(separators=(",", ":"), check_circular=False)
_THREAD = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)


class StepSummary:
    """Collects durations of the current step; `end` writes its line."""

    def __init__(self, path: Path) -> None:
        """Write to this file; its folder is made."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._file: IO[bytes] = path.open("ab")
        self._n_bytes = path.stat().st_size
        self._flushed_s = time.monotonic()
        self._spans: defaultdict[str, list[int]] = defaultdict(list)
        self._usage = resource.getrusage(_THREAD)
        self._cpu_ns = time.thread_time_ns()

    def add(self, part: str, dur_ns: int) -> None:
        """One span of a part took so long."""
        self._spans[part if len(part) <= MAX_NAME and part.isascii() else _short(part)].append(
            dur_ns
        )

    def end(self, step: int, dur_ns: int, device: DeviceStep | None = None) -> None:
        """The step has ended: write its line, with a step that was read by now; begin the next."""
        spans, self._spans = self._spans, defaultdict(list)
        before, used = self._usage, resource.getrusage(_THREAD)
        # The times of `used` are counted in ticks of some ms where the kernel is built so.
        before_cpu_ns, cpu_ns = self._cpu_ns, time.thread_time_ns()
        self._usage, self._cpu_ns = used, cpu_ns
        line = {
            "step": step,
            "ended_ns": time.time_ns(),
            "dur_ns": dur_ns,
            "parts": {name: _of(spans[name]) for name in _longest(spans, MAX_PARTS)},
            "host": {
                "cpu_ns": cpu_ns - before_cpu_ns,
                "n_waits": used.ru_nvcsw - before.ru_nvcsw,
                "n_preempted": used.ru_nivcsw - before.ru_nivcsw,
                "n_major_faults": used.ru_majflt - before.ru_majflt,
            },
        }
        if device is not None:
            line["device"] = _on_device(device)
        text = _JSON.encode(line).encode() + b"\n"
        self._file.write(text)
        self._n_bytes += len(text)
        now_s = time.monotonic()
        if self._n_bytes > MAX_FILE_BYTES:
            self._begin_again()
        elif now_s - self._flushed_s > FLUSH_S:
            self._file.flush()
            self._flushed_s = now_s

    def close(self) -> None:
        """Write what is left."""
        self._file.close()

    def _begin_again(self) -> None:
        self._file.close()
        self._path.replace(self._path.with_suffix(".old.jsonl"))
        self._file = self._path.open("wb")
        self._n_bytes = 0


@lru_cache(maxsize=1024)
def _short(name: str) -> str:
    """The name in ASCII, as many bytes in JSON as it has letters, cut to its end."""
    whole = name.encode("ascii", "backslashreplace").decode().replace("\\", "/")
    return whole if len(whole) <= MAX_NAME else f"...{whole[3 - MAX_NAME :]}"


def _longest(spans: dict[str, list[int]], n_most: int) -> list[str]:
    """The parts that took most of the step, at most so many."""
    if len(spans) <= n_most:
        return list(spans)
    return sorted(spans, key=lambda name: -sum(spans[name]))[:n_most]


def _on_device(device: DeviceStep) -> dict[str, object]:
    spans = device.parts_ns
    parts = {_short(name): _of(spans[name]) for name in _longest(spans, MAX_DEVICE_PARTS)}
    return {"step": device.step, "dur_ns": device.dur_ns, "parts": parts}


def _of(dur_ns: list[int]) -> list[int]:
    """Count, sum, median and 99th percentile of some durations (nearest rank), in ns."""
    n = len(dur_ns)
    if n == 1:  # most parts: worked out, they would take half the time of a line
        return [1, dur_ns[0], dur_ns[0], dur_ns[0]]
    dur_ns.sort()
    return [n, sum(dur_ns), dur_ns[(n - 1) // 2], dur_ns[max(-(-99 * n // 100) - 1, 0)]]
