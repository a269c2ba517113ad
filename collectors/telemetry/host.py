"""The host and the job's processes: from /proc where there is one, from psutil elsewhere."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.collectors.telemetry import host_proc, host_psutil, readings
from tracekit.collectors.telemetry.counters import Counters
from tracekit.collectors.telemetry.samples import Sample, Source

if TYPE_CHECKING:
    from collections.abc import Callable

_PROC = Path("/proc")
_SYS = Path("/sys")


def opened(
    parent_pid: int | None,
    *,
    proc: Path = _PROC,
    sys: Path = _SYS,
    now_ns: Callable[[], int] = time.time_ns,
) -> Source:
    """The host, and the job that a process began.

    Raises:
        UnavailableError: there is neither /proc nor psutil.
    """
    counters = Counters()
    if (proc / "stat").exists():
        by_proc = host_proc.opened(proc, sys, parent_pid)

        def read_proc() -> list[Sample]:
            found = host_proc.readings(by_proc)
            return readings.samples(found, counters, now_ns(), host_proc.SOURCE)

        return Source(id=host_proc.SOURCE, read=read_proc)
    by_psutil = host_psutil.opened(parent_pid)

    def read_psutil() -> list[Sample]:
        found = host_psutil.readings(by_psutil)
        return readings.samples(found, counters, now_ns(), host_psutil.SOURCE)

    return Source(id=host_psutil.SOURCE, read=read_psutil)
