"""The process: samples every source at each tick, until its job is gone."""

from __future__ import annotations

import importlib
import os
import platform
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.collectors.telemetry import amd, host, infiniband, nvml
from tracekit.collectors.telemetry.metrics import THROTTLE_REASONS, UNITS
from tracekit.collectors.telemetry.output import Full, Output
from tracekit.collectors.telemetry.parent import Parent
from tracekit.collectors.telemetry.samples import (
    Source,
    UnavailableError,
    is_wanted,
    json_line,
    lines,
)
from tracekit.collectors.telemetry.schedule import next_tick

if TYPE_CHECKING:
    from collections.abc import Callable

FORMAT = 1
_LONGEST_WAIT_NS = 10**9  # how late the end of the job is noticed at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to sample, where to, how often, and the process whose end is the end.

    `job_pid` is the first process of the job, whose CPU time is counted; null: the parent is.
    A file of `most_bytes` ends it, or, with `keeps_latest`, becomes the old one beside a new file.
    """

    out: Path
    every_ns: int
    parent_pid: int
    job_pid: int | None = None
    devices: tuple[str, ...] = ()
    most_bytes: int
    keeps_latest: bool = False


@dataclass(slots=True)
class Counts:
    """What the last line says about the whole."""

    n_ticks: int = 0
    n_missed: int = 0
    n_failed: int = 0


def run(options: Options) -> None:
    """Sample until the parent is gone, a signal comes, or the file is full or gone.

    Raises:
        OSError: the file cannot be opened.
    """
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    be_humble()
    try:
        output = Output(options.out, options.most_bytes)
    except BlockingIOError:  # every process of mp.spawn takes itself for the first of its host
        sys.stderr.write(f"Another process samples to {options.out} already\n")
        return
    parent = Parent(options.parent_pid)
    sources, missing = opened_sources(options)
    counts = Counts()
    first_line = json_line(header(options, sources, missing))
    why = partial(_why, stop, parent)
    try:
        while True:
            output.write(first_line)
            try:
                reason = _sample(options, sources, output, counts, why)
            except Full:
                if not options.keeps_latest:
                    raise
                output.begin_again()
            else:
                break
    except Full:
        reason = f"the file has its {options.most_bytes} bytes"
    except OSError as error:
        reason = str(error)
    with suppress(OSError):  # the disk is full or gone: nothing is left to say it with
        output.write_last(json_line({"kind": "end", "reason": reason[:200], **asdict(counts)}))


def _sample(
    options: Options,
    sources: tuple[Source, ...],
    output: Output,
    counts: Counts,
    why: Callable[[int, Output], str | None],
) -> str:
    """Sample at each tick; why it ended."""
    started_ns = time.monotonic_ns()
    tick = 0
    while True:
        reason = why(started_ns + tick * options.every_ns, output)
        if reason:
            return reason
        data = []
        for source in sources:
            try:
                data += source.read()
            except Exception:  # noqa: BLE001 - one source that breaks must not end the others
                counts.n_failed += 1
        output.write(lines(data))
        counts.n_ticks += 1
        following = next_tick(tick, time.monotonic_ns() - started_ns, options.every_ns)
        counts.n_missed += following - tick - 1
        tick = following


def _why(stop: threading.Event, parent: Parent, due_ns: int, output: Output) -> str | None:
    """Wait for a time of the monotonic clock; at once, why to end instead."""
    while True:
        left_ns = due_ns - time.monotonic_ns()
        if stop.wait(min(max(left_ns, 0), _LONGEST_WAIT_NS) / 1e9):
            return "a signal"
        if parent.is_gone():
            return "the parent is gone"
        if not output.is_there():
            return "the file is gone"
        if left_ns <= _LONGEST_WAIT_NS:
            return None


def opened_sources(options: Options) -> tuple[tuple[Source, ...], dict[str, str]]:
    """Sources that are there, and why others, and devices asked for, are not."""
    wanted = options.devices or None
    openers: dict[str, Callable[[], Source]] = {
        nvml.SOURCE: lambda: nvml.opened(wanted, options.every_ns),
        amd.SOURCE: lambda: amd.opened(wanted),
        "host": lambda: host.opened(options.job_pid or options.parent_pid),
        infiniband.SOURCE: infiniband.opened,
    }
    found: list[Source] = []
    missing: dict[str, str] = {}
    for name, opener in openers.items():
        try:
            found.append(opener())
        except UnavailableError as error:
            missing[name] = str(error)
        except Exception as error:  # noqa: BLE001 - a broken driver must not hide the host
            missing[name] = f"{type(error).__name__}: {error}"
    there = [device.uuid for source in found for device in source.devices]
    for uuid in options.devices:
        if not any(is_wanted(each, [uuid]) for each in there):
            missing[uuid] = "no such device on this host"
    return tuple(found), missing


def header(
    options: Options, sources: tuple[Source, ...], missing: dict[str, str]
) -> dict[str, Any]:
    """The first line: what is sampled, in which units, and what is not, and why."""
    lacks: dict[str, dict[str, str]] = {}
    for source in sources:
        for lack in source.lacks:
            lacks.setdefault(lack.device_uuid, {})[lack.metric] = lack.reason
    return {
        "kind": "header",
        "format": FORMAT,
        "host": platform.node(),
        "pid": os.getpid(),
        "parent_pid": options.parent_pid,
        "started_ns": time.time_ns(),
        "every_ns": options.every_ns,
        "sources": [source.id for source in sources],
        "missing": missing,
        "devices": [asdict(device) for source in sources for device in source.devices],
        "lacks": lacks,
        "units": UNITS,
        "throttle_reasons": THROTTLE_REASONS,
    }


def be_humble() -> None:
    """Take the CPU and the disk only when no one else wants them."""
    with suppress(OSError):
        os.nice(19)
    with suppress(Exception):  # not installed, not of this system, not allowed: it matters little
        psutil = importlib.import_module("psutil")
        psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)
