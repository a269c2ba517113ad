"""Run a command and measure it: wall time, CPU time of it and its workers, largest process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass

from tracekit.engine import ALLOCATORS

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
    """One measured command. `peak_bytes` is the largest resident size of one of its processes.

    `said` is what it wrote to its standard error.
    """

    wall_s: float
    cpu_s: float
    peak_bytes: int
    said: str


def measured(command: list[str]) -> Measured:
    """Run a command to its end, output thrown away.

    Raises:
        RuntimeError: it failed; the message holds what it printed.
    """
    # Polars, imported here, leaves the settings of its allocator to processes started from here.
    environment = {key: value for key, value in os.environ.items() if key not in ALLOCATORS}
    started_s = time.perf_counter()
    done = subprocess.run(  # noqa: S603 - our own commands
        [sys.executable, "-I", "-S", "-c", _PROBE, *command],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    wall_s = time.perf_counter() - started_s
    returncode, cpu_s, peak_kib = json.loads(done.stdout)
    if returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
    return Measured(wall_s=wall_s, cpu_s=cpu_s, peak_bytes=peak_kib * 1024, said=done.stderr)


def least(command: list[str], n_runs: int) -> Measured:
    """The run that took least CPU time: what is above it is the machine's doing."""
    return min((measured(command) for _ in range(n_runs)), key=lambda run: run.cpu_s)


def printed(command: list[str]) -> str:
    """What a command prints.

    Raises:
        RuntimeError: it failed; the message holds what it printed.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command[:3])}: {done.stderr}")
    return done.stdout
