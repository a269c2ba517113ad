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
"""Conversions of this process, kept so that those that have ended leave no zombie."""


def start(window: Path, rank: int, *, keeps_raw: bool) -> None:
    """Start the conversion of one rank's window; what it says goes to a file beside the traces.

    It belongs to a session of its own, so that Ctrl-C in the job leaves it to finish.
    """
    _running[:] = [process for process in _running if process.poll() is None]
    environment = {key: value for key, value in os.environ.items() if key not in _NOT_INHERITED}
    environment["POLARS_MAX_THREADS"] = "1"
    command = [sys.executable, "-m", MODULE, str(window), "--rank", str(rank)]
    with (window / "raw" / f"rank={rank:06d}.{LOG}").open("wb") as said:
        process = subprocess.Popen(  # noqa: S603 - our own module
            [*command, *(["--keep-raw"] if keeps_raw else [])],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=environment,
            start_new_session=True,
        )
    _running.append(process)


def finish(timeout_s: float) -> None:
    """Wait for the conversions of this process.

    Raises:
        subprocess.TimeoutExpired: some are not done; they go on by themselves.
    """
    until_s = time.monotonic() + timeout_s
    while _running:
        _running[-1].wait(max(until_s - time.monotonic(), 0.0))
        _running.pop()
