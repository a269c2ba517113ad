"""Run a command and measure it: wall time, CPU time of it and its workers, largest process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass

TRACEKIT = [sys.executable, "-m", "tracekit"]
_PROBE = """
import json, os, resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([done.returncode, usage.ru_utime + usage.ru_stime, usage.ru_maxrss]))
"""
"""Runs the command from a process of its own: a child counts the size of the one that starts it."""


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
    done = subprocess.run(  # noqa: S603 - our own commands
        [sys.executable, "-I", "-S", "-c", _PROBE, *command],
        capture_output=True,
        text=True,
        check=True,
    )
    wall_s = time.perf_counter() - started_s
    returncode, cpu_s, peak_kib = json.loads(done.stdout)
    if returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
    return Measured(wall_s=wall_s, cpu_s=cpu_s, peak_bytes=peak_kib * 1024)
