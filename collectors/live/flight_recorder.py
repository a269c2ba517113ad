"""torch's flight recorder, saved beside the run: a rank's last collectives, and where it hangs.

Its dumps are written as JSON without stacks, which costs 2 ms; a dump with stacks can need the lock
of Python and is made only where the loop seems to hang.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
import traceback
from collections import deque
from typing import TYPE_CHECKING, Any

from tracekit.collectors.live._guard import log, quiet
from tracekit.collectors.live.identity import process_groups
from tracekit.facts import write_whole

if TYPE_CHECKING:
    from pathlib import Path

MIN_HANG_S = 120.0
"""Compilation, checkpoints and evaluation take a minute or two between steps."""
HANG_STEPS = 20.0
"""A step that takes so many times the median one seems to hang."""
N_STEPS = 50


def dumped(folder: Path, rank: int) -> Path | None:
    """Write what the flight recorder holds as JSON; null where torch has none in this process."""
    dump = _function("_dump_fr_trace_json", "_dump_nccl_trace_json")
    if dump is None:
        return None
    path = folder / f"rank={rank:06d}.json"
    # Collectives, finished ones too; the names of the arguments differ between versions.
    write_whole(path, _bytes(dump(True, False)))  # noqa: FBT003
    return path


def dumped_with_stacks(folder: Path, rank: int) -> None:
    """Write where every Python thread is, then what the flight recorder holds with its stacks."""
    threads = {thread.ident: thread.name for thread in threading.enumerate()}
    text = []
    for ident, frame in sys._current_frames().items():  # noqa: SLF001 - the documented way
        text += [f"Thread {threads.get(ident, ident)}:\n", *traceback.format_stack(frame), "\n"]
    write_whole(folder / f"rank={rank:06d}.stacks.txt", "".join(text).encode())
    dump = _function("_dump_fr_trace", "_dump_nccl_trace")
    if dump is not None:
        write_whole(folder / f"rank={rank:06d}.pickle", _bytes(dump(True, True, False)))  # noqa: FBT003


class Watchdog:
    """Dumps once when no step has ended for long; a step that ends arms it again.

    A thread of its own looks every few seconds; it never touches a device or another rank.
    """

    def __init__(self, attempt: Path, rank: int, *, min_hang_s: float = MIN_HANG_S) -> None:
        """Start watching."""
        self._folder = attempt / "flight_recorder"
        self._rank = rank
        self._min_hang_s = min_hang_s
        self._dur_s: deque[float] = deque(maxlen=N_STEPS)
        self._ended_s = time.monotonic()
        self._is_armed = True
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tracekit-watchdog", daemon=True)
        self._thread.start()

    def step(self) -> None:
        """A step has ended."""
        now_s = time.monotonic()
        self._dur_s.append(now_s - self._ended_s)
        self._ended_s, self._is_armed = now_s, True

    def save(self) -> None:
        """Dump now, without stacks: at the end of a window."""
        self._folder.mkdir(parents=True, exist_ok=True)
        dumped(self._folder, self._rank)

    def close(self) -> None:
        """Stop watching."""
        self._stop.set()

    def _watch(self) -> None:
        while not self._stop.wait(self._min_hang_s / 20):
            usual_s = statistics.median(self._dur_s) if self._dur_s else 0.0
            silent_s = time.monotonic() - self._ended_s
            if self._is_armed and silent_s > max(self._min_hang_s, HANG_STEPS * usual_s):
                self._is_armed = False
                log.warning(
                    "tracekit: no step has ended for %.0f s: stacks and the last collectives are "
                    "in %s",
                    silent_s,
                    self._folder,
                )
                with quiet("the flight recorder is not dumped"):
                    self.save()
                    dumped_with_stacks(self._folder, self._rank)


def _function(*names: str) -> Any | None:
    """The first of these that torch has, where the job has process groups."""
    if process_groups() is None:
        return None
    c10d: Any = sys.modules.get("torch._C._distributed_c10d")
    return next((getattr(c10d, name) for name in names if hasattr(c10d, name)), None)


def _bytes(dumped_by_torch: bytes | str) -> bytes:
    return dumped_by_torch if isinstance(dumped_by_torch, bytes) else dumped_by_torch.encode()
