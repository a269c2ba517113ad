"""Starts the conversion of what a rank recorded, in a process of its own that yields to the job."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

MODULE = "tracekit.collectors.sources.recorded"
LOG = "convert.log"
_NOT_INHERITED = ("LD_PRELOAD", "CUDA_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID")
"""Tools that watch the job are not meant for this process."""


def started(window: Path, rank: int, *, keeps_raw: bool) -> subprocess.Popen[bytes]:
    """Start the conversion of one rank's window; what it says goes to a file beside the traces.

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
