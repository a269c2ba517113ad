"""What a source gives: samples, each with the time it holds for, and why others are not there."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class UnavailableError(Exception):
    """A source is not there; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One value of one metric, from start to end in ns since 1970; both are equal for a point.

    `part` names what of the host it is: an interface, a disk, a port. `device_uuid` is null there.
    """

    metric: str
    value: float
    start_ns: int
    end_ns: int
    source: str
    device_uuid: str | None = None
    part: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device, as its driver names it. Processes number devices differently, so uuid is key."""

    uuid: str
    index: int
    name: str
    pci_bus_id: str
    driver: str


@dataclass(frozen=True, slots=True)
class Lack:
    """A metric that a device does not give, and why."""

    device_uuid: str
    metric: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Something that can be sampled; `read` never raises for a value that fails to come."""

    id: str
    read: Callable[[], list[Sample]]
    devices: tuple[Device, ...] = ()
    lacks: tuple[Lack, ...] = ()


def bare_uuid(uuid: str) -> str:
    """A UUID as every tool writes it: NVML puts "GPU-" before it, PyTorch does not."""
    return uuid.lower().removeprefix("gpu-")


def is_wanted(uuid: str, wanted: Sequence[str] | None) -> bool:
    """Whether a device is one of those; null stands for all."""
    return wanted is None or bare_uuid(uuid) in map(bare_uuid, wanted)


def lines(samples: Iterable[Sample]) -> bytes:
    """JSON: a line for the points and one for the intervals of each source, device and part.

    A value is a number where it holds for the `dur_ns` before `at_ns`, else a list of value, start
    and end, both as ns relative to `at_ns`: drivers stamp some values one by one.
    """
    groups: dict[tuple[str, str | None, str | None, bool], list[Sample]] = {}
    for sample in samples:
        if math.isfinite(sample.value):  # JSON has no other numbers
            is_point = sample.start_ns == sample.end_ns
            key = (sample.source, sample.device_uuid, sample.part, is_point)
            groups.setdefault(key, []).append(sample)
    return b"".join(json_line(_line(group)) for group in groups.values())


def _line(group: list[Sample]) -> dict[str, Any]:
    at_ns = max(sample.end_ns for sample in group)
    first = group[0]
    dur_ns = first.end_ns - first.start_ns
    return {
        "kind": "sample",
        "source": first.source,
        **({"device": first.device_uuid} if first.device_uuid else {}),
        **({"part": first.part} if first.part else {}),
        "at_ns": at_ns,
        **({"dur_ns": dur_ns} if dur_ns else {}),
        "values": {
            sample.metric: _short(sample.value)
            if (sample.start_ns, sample.end_ns) == (at_ns - dur_ns, at_ns)
            else [_short(sample.value), sample.start_ns - at_ns, sample.end_ns - at_ns]
            for sample in group
        },
    }


def _short(value: float) -> float:
    """Nine digits of a fraction: more are noise, and a third of the file."""
    return value if isinstance(value, int) else float(f"{value:.9g}")


def json_line(value: dict[str, Any]) -> bytes:
    """A value as one line of JSON."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode() + b"\n"
