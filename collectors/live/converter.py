"""Starts the conversion of what a rank recorded, in a process of its own that yields to the job."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

MODULE = "tracekit.collectors.sources.recorded"
LOG = "convert.log"
_NOT_INHERITED = ("LD_PRELOAD", "CUDA_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID")
"""Tools that watch the job are not meant for this process."""


_running: list[subprocess.Popen[bytes]] = []
"""The conversion of this process, if one is going on; kept so that it leaves no zombie."""
_waiting: list[tuple[Path, int, bool]] = []
"""What is to be converted after it: windows may come faster than they are converted."""


def start(window: Path, rank: int, *, keeps_raw: bool) -> None:
    """Convert one rank's window, at once or after the one before it."""
    _waiting.append((window, rank, keeps_raw))
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
        _running[0].wait(max(until_s - time.monotonic(), 0.0))
        _running.clear()
        go_on()


def go_on() -> None:
    """Start the next conversion where one waits and none is going on."""
    if not _waiting:
        return
    _running[:] = [process for process in _running if process.poll() is None]
    if not _running:
        _running.append(_started(*_waiting.pop(0)))


def _started(window: Path, rank: int, keeps_raw: bool) -> subprocess.Popen[bytes]:  # noqa: FBT001
    """Start a conversion; what it says goes to a file beside the traces.

    It belongs to a session of its own, so that Ctrl-C in the job leaves it to finish.
    """
    environment = {key: value for key, value in os.environ.items() if key not in _NOT_INHERITED}
    environment["POLARS_MAX_THREADS"] = "1"
    command = [sys.executable, "-m", MODULE, str(window), "--rank", str(rank)]
    with (window / "raw" / f"rank={rank:06d}.{LOG}").open("wb") as said:
        return subprocess.Popen(  # noqa: S603 - our own module
            [*command, *(["--keep-raw"] if keeps_raw else [])],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=environment,
            start_new_session=True,
        )
