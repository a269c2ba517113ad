"""How much a hook may record: limits on steps, events and bytes, and what a probe says of them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

MAX_STACK_STEPS = 3
"""Python stacks make traces many times larger: 512 GiB of memory were used up by one such job."""
_READ_BYTES = 4 << 20
_EVENT = b'"ph":'


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of one rank: events and bytes of one window, bytes of all its windows, free disk to leave.

    Bytes are those of the profiler's JSON, which takes about sixty times less once it is converted.
    """

    max_events: int = 4_000_000
    max_window_bytes: int = 1 << 30
    max_total_bytes: int = 16 << 30
    min_free_bytes: int = 2 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What one recorded step took."""

    n_events: int
    size_bytes: int


def probed(trace: Path) -> Probe:
    """Events and bytes of a trace file, without reading what they say."""
    n_events, tail = 0, b""
    with trace.open("rb") as file:
        while piece := file.read(_READ_BYTES):
            n_events += (tail + piece).count(_EVENT)
            tail = piece[-len(_EVENT) + 1 :]
    return Probe(n_events=n_events, size_bytes=trace.stat().st_size)


def allowed_steps(wanted: int, probe: Probe | None, limits: Limits) -> tuple[int, str]:
    """How many steps a window may have, and why not more; no reason where it may have all."""
    if probe is None:
        return wanted, ""
    by_events = limits.max_events // max(probe.n_events, 1)
    by_bytes = limits.max_window_bytes // max(probe.size_bytes, 1)
    allowed = min(wanted, by_events, by_bytes)
    if allowed == wanted:
        return wanted, ""
    return allowed, (
        f"{allowed} steps instead of {wanted}: one has {probe.n_events:,} events and "
        f"{probe.size_bytes / 1e6:,.0f} MB; the limits are {limits.max_events:,} events "
        f"(max_events) and {limits.max_window_bytes / 1e6:,.0f} MB (max_window_bytes) a window"
    )


def why_no_room(folder: Path, probe: Probe | None, n_steps: int, spent: int, limits: Limits) -> str:
    """Why nothing may be written now; empty where it may."""
    needed = probe.size_bytes * n_steps if probe is not None else 0
    if spent + needed > limits.max_total_bytes:
        return (
            f"{spent / 1e6:,.0f} MB are recorded: max_total_bytes is "
            f"{limits.max_total_bytes / 1e6:,.0f} MB"
        )
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes - needed < limits.min_free_bytes:
        return (
            f"{free_bytes / 1e6:,.0f} MB are free in {folder}, it takes {needed / 1e6:,.1f} MB, "
            f"and {limits.min_free_bytes / 1e6:,.0f} MB (min_free_bytes) must stay free"
        )
    return ""
