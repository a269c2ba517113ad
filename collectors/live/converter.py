"""Starts the conversion of what a rank recorded, in a process of its own that yields to the job."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.collectors.live import processes
from tracekit.collectors.live._guard import log

if TYPE_CHECKING:
    import subprocess

MODULE = "tracekit.collectors.sources.recorded"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """What one rank recorded of one window."""

    window: Path
    rank: int
    keeps_raw: bool

    @property
    def log(self) -> Path:
        """What its conversion says: beside the trace, and gone with it."""
        return self.window / "raw" / f"rank={self.rank:06d}.convert.log"


_running: list[tuple[_Part, subprocess.Popen[bytes]]] = []
"""The conversion of this process, if one is going on; kept so that it leaves no zombie."""
_waiting: list[_Part] = []
"""What is to be converted after it: windows may come faster than they are converted."""


def start(window: Path, rank: int, *, keeps_raw: bool) -> None:
    """Convert one rank's window, at once or after the one before it."""
    _waiting.append(_Part(window=window, rank=rank, keeps_raw=keeps_raw))
    go_on()


def finish(timeout_s: float) -> None:
    """Wait for the conversions of this process.

    Raises:
        subprocess.TimeoutExpired: one is not done; it goes on by itself, and what waits is left
            to `tracekit convert`.
    """
    until_s = time.monotonic() + timeout_s
    go_on()
    while _running:
        _running[0][1].wait(max(until_s - time.monotonic(), 0.0))
        go_on()


def go_on() -> None:
    """Start the next conversion where one waits and none is going on."""
    if _running and _running[0][1].poll() is not None:
        part, process = _running.pop()
        if process.returncode != 0:
            log.warning(
                "tracekit: a trace is not converted yet, for the reason in %s: tracekit convert %s",
                part.log,
                part.window.parents[1],
            )
    if _waiting and not _running:
        part = _waiting.pop(0)
        _running.append((part, _started(part)))


def _started(part: _Part) -> subprocess.Popen[bytes]:
    arguments = [str(part.window), "--rank", str(part.rank)]
    if part.keeps_raw:
        arguments.append("--keep-raw")
    with part.log.open("wb") as said:
        return processes.started(MODULE, *arguments, said=said)
