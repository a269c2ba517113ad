"""Cost of the telemetry sampler: CPU of one tick, CPU share of the process, size of its file.

Run:
    python -m benchmarks.telemetry
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.inputs import Inputs, main
from benchmarks.table import Row, mb
from tracekit.collectors.telemetry import host
from tracekit.collectors.telemetry.samples import lines

if TYPE_CHECKING:
    from collections.abc import Iterator

TITLE = "Telemetry"
N_TICKS = 500
N_SAMPLED = 20
_COMMAND = [sys.executable, "-m", "tracekit.collectors.telemetry"]


def rows(inputs: Inputs) -> Iterator[Row]:
    """CPU of a tick of the host, then the process at 1 Hz and 10 Hz, as this machine has it."""
    source = host.opened(os.getppid())
    began_s = time.process_time()
    for _ in range(N_TICKS):
        lines(source.read())
    tick_s = (time.process_time() - began_s) / N_TICKS
    yield Row(f"one tick of the host: CPU, mean of {N_TICKS}", f"{tick_s * 1e3:.2f} ms")
    for per_s in (1, 10):
        cpu_share, bytes_per_hour = _process(inputs.folder / f"{per_s}.jsonl", per_s)
        yield Row(f"sampler at {per_s} Hz: share of a core", f"{cpu_share:.2%}")
        yield Row(f"sampler at {per_s} Hz: file, an hour", mb(bytes_per_hour))


def _process(out: Path, per_s: int) -> tuple[float, float]:
    """CPU share and bytes an hour of the process, over `N_SAMPLED` ticks after its start."""
    with subprocess.Popen([*_COMMAND, out, "--every-s", str(1 / per_s)]) as process:  # noqa: S603
        while not out.exists() or out.read_bytes().count(b"\n") < 3:
            time.sleep(0.01)
        before_s, before_bytes, began_s = _cpu_s(process.pid), _size(out), time.monotonic()
        time.sleep(N_SAMPLED / per_s)
        cpu_s, size_bytes = _cpu_s(process.pid) - before_s, _size(out) - before_bytes
        elapsed_s = time.monotonic() - began_s
        process.terminate()
    return cpu_s / elapsed_s, size_bytes / elapsed_s * 3600


def _cpu_s(pid: int) -> float:
    """CPU time of a process; its stat counts in steps of 10 ms, which is more than a tick takes."""
    return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]) / 1e9


def _size(path: Path) -> int:
    return path.stat().st_size


if __name__ == "__main__":
    main(__doc__, {TITLE: rows})
