"""What one rank of a job knows of itself, as a hook writes it beside what it records.

Only the standard library is imported here: this is written from inside training processes.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device that the process sees: its index there, and its UUID, which no setting renumbers."""

    index: int
    uuid: str | None = None
    name: str | None = None
    memory_bytes: int | None = None
    sm_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A process group: its global ranks in order."""

    name: str
    description: str
    backend: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The parallel layout: size of each dimension, this rank's place in it, and who says so."""

    sizes: dict[str, int] = field(default_factory=dict)
    place: dict[str, int] = field(default_factory=dict)
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockPair:
    """One moment on two clocks of a host, in ns; `error_ns` bounds how far apart they were read."""

    realtime_ns: int
    monotonic_ns: int
    error_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReading:
    """What must be added to a host's time to get that of the reference host, at one moment.

    `at_ns` is Unix time of the host; `error_ns` bounds the offset.
    """

    at_ns: int
    offset_ns: int
    error_ns: int
    reference: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One rank of one attempt of a job. A null was not to be had."""

    format: int = FORMAT
    rank: int
    local_rank: int
    world_size: int
    host: str
    pid: int
    attempt: int
    launcher: str | None = None
    backend: str | None = None
    devices: tuple[Device, ...] = ()
    groups: tuple[Group, ...] = ()
    layout: Layout = field(default_factory=Layout)
    versions: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What a rank trained on in one call of `samples`: the lengths in tokens, say, of its batch."""

    step: int
    at_ns: int
    lengths: tuple[int, ...]
    modality: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One recorded window of one rank: its steps, what it cost, and why it is short if it is.

    Times are Unix ns. `before_ns` and `during_ns` are durations of steps before and in the window:
    their difference is what recording costs. `keeps_raw` says that the trace is to stay when it has
    been converted, whoever converts it.
    """

    rank: int
    world_size: int
    first_step: int
    n_steps: int
    is_whole: bool
    started_ns: int
    ended_ns: int
    size_bytes: int
    save_ns: int
    before_ns: tuple[int, ...] = ()
    during_ns: tuple[int, ...] = ()
    samples: tuple[Sample, ...] = ()
    clocks: tuple[ClockPair, ...] = ()
    notes: tuple[str, ...] = ()
    keeps_raw: bool = False


def write(path: Path, value: Facts | Window | dict[str, object]) -> None:
    """Write as JSON, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    fields = value if isinstance(value, dict) else asdict(value)
    write_whole(path, json.dumps(fields).encode())


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that is there with all it has, or as it was.

    Raises:
        OSError: it cannot be written.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
