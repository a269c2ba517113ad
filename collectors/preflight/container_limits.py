"""What a container or a scheduler allows: processors, memory, and memory that processes share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tracekit.collectors.preflight import Answer, Check, Group, Machine, State

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GIB = 1 << 30
UNLIMITED_BYTES = 1 << 60
"""The first version of cgroups says so with a number near 2^63."""
LEAST_SHARED_BYTES = GIB
"""Loaders pass batches through it, and NCCL between devices; Docker gives 64 MiB."""
LEAST_MEMORY_BYTES = 4 * GIB


def _look(machine: Machine) -> Iterator[Answer]:
    yield _processors(cpu_quota(machine))
    yield _memory(memory_limit_bytes(machine))
    yield _shared(machine)


def cpu_quota(machine: Machine) -> float | None:
    """Processors that the strictest group around this process allows; null without a limit."""
    found = []
    for folder in _groups(machine):
        quota_us, period_us = _words(folder / "cpu.max") or ("max", "1")
        if quota_us == "max":
            quota_us = (_words(folder / "cpu.cfs_quota_us") or ["-1"])[0]
            period_us = (_words(folder / "cpu.cfs_period_us") or ["100000"])[0]
        if int(quota_us) > 0:
            found.append(int(quota_us) / int(period_us))
    return min(found, default=None)


def memory_limit_bytes(machine: Machine) -> int | None:
    """Memory that the strictest group around this process allows; null without a limit."""
    names = ("memory.max", "memory.limit_in_bytes")
    words = [_words(folder / name) for folder in _groups(machine) for name in names]
    limits = [int(each[0]) for each in words if each and each[0] != "max"]
    return min((limit for limit in limits if limit < UNLIMITED_BYTES), default=None)


def _groups(machine: Machine) -> Iterator[Path]:
    """The groups of this process and those around them, of both versions of cgroups.

    In a container the names may be those of the host, of which no folder is seen: what is at the
    top there is its own.
    """
    root = machine.sysfs / "fs/cgroup"
    for line in (machine.proc / "self/cgroup").read_text("utf-8").splitlines():
        _, controllers, name = line.split(":", 2)
        for controller in controllers.split(","):
            top = root / controller
            inner = top / name.lstrip("/")
            yield from (each for each in (inner, *inner.parents) if each.is_relative_to(top))


def _words(path: Path) -> list[str]:
    try:
        return path.read_text("ascii").split()
    except OSError:
        return []


def _processors(quota: float | None) -> Answer:
    if quota is None:
        return Answer(Group.CONFLICT, State.OK, "No quota limits the processors.")
    text = f"A quota of {quota:g} processors: a host that is throttled shows as an idle GPU."
    fix = "docker run without --cpus; in Kubernetes, no limit of cpu"
    return Answer(Group.CONFLICT, State.NOTE, text, fix)


def _memory(limit_bytes: int | None) -> Answer:
    if limit_bytes is None:
        return Answer(Group.CONFLICT, State.OK, "No group limits the memory.")
    text = f"The memory is limited to {limit_bytes / GIB:.1f} GiB."
    if limit_bytes >= LEAST_MEMORY_BYTES:
        return Answer(Group.CONFLICT, State.OK, text)
    fix = f"Give the job {LEAST_MEMORY_BYTES // GIB} GiB more than it needs without a recorder"
    return Answer(Group.CONFLICT, State.NOTE, text, fix)


def _shared(machine: Machine) -> Answer:
    try:
        stat = os.statvfs(machine.dev / "shm")
    except OSError as error:
        text = f"Shared memory (/dev/shm) cannot be used: {error.strerror}."
        return Answer(Group.CONFLICT, State.NOTE, text, "docker run --shm-size=16g")
    size_bytes = stat.f_frsize * stat.f_blocks
    text = f"Shared memory (/dev/shm) has {size_bytes / GIB:.2f} GiB."
    if size_bytes >= LEAST_SHARED_BYTES:
        return Answer(Group.CONFLICT, State.OK, text)
    fix = "docker run --shm-size=16g, or --ipc=host"
    return Answer(Group.CONFLICT, State.NOTE, f"{text[:-1]}, for loaders and NCCL.", fix)


CHECK = Check(id="container-limits", look=_look)
