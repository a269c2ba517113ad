"""The host, from /proc: a few files, read as a whole and cut into words."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.collectors.telemetry.readings import JobTime, Kind, Reading

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = "proc"
_SECTOR_BYTES = 512  # of /proc/diskstats, whatever the disk's own are
_TREE_AGE_S = 10.0
"""How long the list of the job's processes is used: finding them reads one file per process."""


@dataclass(slots=True)
class Host:
    """Where to read, and what is remembered between readings."""

    proc: Path
    sys: Path
    parent_pid: int | None
    n_cores: int
    us_per_tick: float
    disks: frozenset[str]
    job: JobTime = field(default_factory=JobTime)
    pids: tuple[int, ...] = ()
    pids_until_s: float = 0.0


def opened(proc: Path, sys: Path, parent_pid: int | None) -> Host:
    """The host behind these folders, and the job whose first process is that."""
    return Host(
        proc=proc,
        sys=sys,
        parent_pid=parent_pid,
        n_cores=os.cpu_count() or 1,
        us_per_tick=1e6 / os.sysconf("SC_CLK_TCK"),
        disks=_whole_disks(sys),
    )


def readings(host: Host) -> Iterator[Reading]:
    """All readings that the kernel gives."""
    yield from _stat(host)
    yield from _memory(host)
    yield from _pressure(host)
    yield from _network(host)
    yield from _disks(host)
    if host.parent_pid is not None:
        yield from _job(host, host.parent_pid)


def _text(path: Path) -> str:
    """A file's text; empty where the kernel does not have it."""
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _stat(host: Host) -> Iterator[Reading]:
    for line in _text(host.proc / "stat").splitlines():
        name, *words = line.split()
        if name == "cpu":
            user, nice, system, _, _, irq, soft_irq, steal = map(int, words[:8])
            busy_ticks = user + nice + system + irq + soft_irq + steal
            busy_us = int(busy_ticks * host.us_per_tick / host.n_cores)
            yield Reading("cpu_share", busy_us, Kind.BUSY_US)
        elif name == "ctxt":
            yield Reading("context_switches_count", int(words[0]))
        elif name == "procs_running":
            yield Reading("run_queue_count", int(words[0]), Kind.GAUGE)
    load = _text(host.proc / "loadavg").split()
    if load:
        yield Reading("load_1min_count", float(load[0]), Kind.GAUGE)


def _memory(host: Host) -> Iterator[Reading]:
    faults = {"pgfault": "page_faults_count", "pgmajfault": "major_page_faults_count"}
    for line in _text(host.proc / "vmstat").splitlines():
        name, _, value = line.partition(" ")
        if name in faults:
            yield Reading(faults[name], int(value))
    for line in _text(host.proc / "meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            yield Reading("memory_available_bytes", int(line.split()[1]) * 1024, Kind.GAUGE)


def _pressure(host: Host) -> Iterator[Reading]:
    """Time in which some process waited for the resource."""
    for resource in ("cpu", "memory", "io"):
        for line in _text(host.proc / "pressure" / resource).splitlines():
            if line.startswith("some "):
                waited_us = int(line.rpartition("=")[2])
                yield Reading(f"{resource}_pressure_share", waited_us, Kind.BUSY_US)


def _network(host: Host) -> Iterator[Reading]:
    """Bytes of each interface but the loopback and the host's ends of containers' links."""
    for line in _text(host.proc / "net" / "dev").splitlines()[2:]:
        name, _, rest = line.partition(":")
        interface, words = name.strip(), rest.split()
        if interface != "lo" and not interface.startswith("veth"):
            yield Reading("network_rx_bytes", int(words[0]), part=interface)
            yield Reading("network_tx_bytes", int(words[8]), part=interface)


def _whole_disks(sys: Path) -> frozenset[str]:
    """Names of disks: without partitions, and without what is made of other disks."""
    return frozenset(path.parent.name for path in (sys / "block").glob("*/device"))


def _disks(host: Host) -> Iterator[Reading]:
    for line in _text(host.proc / "diskstats").splitlines():
        words = line.split()
        if words[2] in host.disks:
            yield Reading("disk_read_bytes", int(words[5]) * _SECTOR_BYTES, part=words[2])
            yield Reading("disk_write_bytes", int(words[9]) * _SECTOR_BYTES, part=words[2])


def _job(host: Host, parent_pid: int) -> Iterator[Reading]:
    if time.monotonic() >= host.pids_until_s:
        host.pids = job_pids(host.proc, parent_pid)
        host.pids_until_s = time.monotonic() + _TREE_AGE_S
    used_us: dict[object, int] = {}
    for pid in host.pids:
        words = stat_words(host.proc, pid)
        if words:
            ticks = int(words[11]) + int(words[12])
            used_us[pid, words[19]] = int(ticks * host.us_per_tick)
    yield Reading("job_process_count", len(used_us), Kind.GAUGE)
    yield Reading("job_cpu_share", host.job.add(used_us) // host.n_cores, Kind.BUSY_US)


def job_pids(proc: Path, parent_pid: int) -> tuple[int, ...]:
    """The process and all below it, without this one."""
    children: dict[int, list[int]] = {}
    for folder in proc.iterdir():
        if folder.name.isdigit():
            words = stat_words(proc, int(folder.name))
            if words:
                children.setdefault(int(words[1]), []).append(int(folder.name))
    found = [parent_pid]
    for pid in found:  # grows while it is walked
        found += [child for child in children.get(pid, ()) if child != os.getpid()]
    return tuple(found)


def stat_words(proc: Path, pid: int) -> list[str]:
    """Words of a process's stat, from its state on; none where it is gone.

    Its name stands before them in parentheses, and may hold spaces and parentheses of its own.
    """
    return _text(proc / str(pid) / "stat").rpartition(")")[2].split()
