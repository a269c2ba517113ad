"""The host, from psutil: where there is no /proc, as on macOS."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tracekit.collectors.telemetry.readings import JobTime, Kind, Reading
from tracekit.collectors.telemetry.samples import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = "psutil"
_US_PER_S = 1_000_000


@dataclass(slots=True)
class Host:
    """The module, and what is remembered between readings."""

    psutil: Any
    parent_pid: int | None
    n_cores: int
    job: JobTime = field(default_factory=JobTime)


def opened(parent_pid: int | None) -> Host:
    """This host, and the job whose first process is that.

    Raises:
        UnavailableError: psutil is not installed.
    """
    try:
        psutil = importlib.import_module("psutil")
    except ImportError as error:
        raise UnavailableError(f"{error}; pip install psutil") from error
    return Host(psutil, parent_pid, psutil.cpu_count() or 1)


def readings(host: Host) -> Iterator[Reading]:
    """All readings that psutil gives on every system."""
    psutil = host.psutil
    times = psutil.cpu_times()._asdict()
    # The guests' time is in the user's as well.
    idle = ("idle", "iowait", "guest", "guest_nice")
    busy_s = sum(value for name, value in times.items() if name not in idle)
    yield Reading("cpu_share", int(busy_s * _US_PER_S / host.n_cores), Kind.BUSY_US)
    yield Reading("context_switches_count", psutil.cpu_stats().ctx_switches)
    yield Reading("load_1min_count", psutil.getloadavg()[0], Kind.GAUGE)
    yield Reading("memory_available_bytes", psutil.virtual_memory().available, Kind.GAUGE)
    for interface, moved in psutil.net_io_counters(pernic=True).items():
        if not interface.startswith(("lo", "veth")):
            yield Reading("network_rx_bytes", moved.bytes_recv, part=interface)
            yield Reading("network_tx_bytes", moved.bytes_sent, part=interface)
    for disk, moved in (psutil.disk_io_counters(perdisk=True) or {}).items():
        yield Reading("disk_read_bytes", moved.read_bytes, part=disk)
        yield Reading("disk_write_bytes", moved.write_bytes, part=disk)
    if host.parent_pid is not None:
        yield from _job(host, host.parent_pid)


def _job(host: Host, parent_pid: int) -> Iterator[Reading]:
    psutil = host.psutil
    try:
        parent = psutil.Process(parent_pid)
        processes = [parent, *parent.children(recursive=True)]
    except psutil.Error:
        return
    used_us: dict[object, int] = {}
    for process in processes:
        if process.pid != os.getpid():
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            used_us[process] = int((times.user + times.system) * _US_PER_S)
    yield Reading("job_process_count", len(used_us), Kind.GAUGE)
    yield Reading("job_cpu_share", host.job.add(used_us) // host.n_cores, Kind.BUSY_US)
