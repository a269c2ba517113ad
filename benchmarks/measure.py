"""Run a command and measure it: wall time, CPU time of it and its workers, largest process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass

TRACEKIT = [sys.executable, "-m", "tracekit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One measured command. `peak_bytes` is the largest resident size of one of its processes."""

    wall_s: float
    cpu_s: float
    peak_bytes: int


def measured(command: list[str]) -> Measured:
    """Run a command to its end, output thrown away.

    Raises:
        RuntimeError: it failed; the message holds what it printed.
    """
    started_s = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)  # noqa: S603
    said = process.stderr.read() if process.stderr else b""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.stderr:
        process.stderr.close()
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {said.decode(errors='replace')}")
    return Measured(
        wall_s=time.perf_counter() - started_s,
        cpu_s=usage.ru_utime + usage.ru_stime,
        peak_bytes=usage.ru_maxrss * 1024,
    )
