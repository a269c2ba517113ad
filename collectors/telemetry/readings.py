"""Readings of the host, and the samples that come of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

from tracekit.collectors.telemetry.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.collectors.telemetry.counters import Counters

_MOST_PER_S = 10**12  # bytes or events: beyond any host
_US_PER_S = 10**6


class Kind(Enum):
    """What a reading is."""

    GAUGE = auto()
    COUNTER = auto()
    BUSY_US = auto()
    """A counter of µs in which something held: its gain is a share of the time between."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One value as it was read."""

    metric: str
    value: int | float
    kind: Kind = Kind.COUNTER
    part: str | None = None


def samples(
    readings: Iterable[Reading], counters: Counters, at_ns: int, source: str
) -> list[Sample]:
    """Samples of readings made at one time; counters give their first at the second reading."""
    found = []
    for reading in readings:
        start_ns, value = at_ns, reading.value
        if reading.kind is not Kind.GAUGE:
            gain = counters.gain(
                (source, reading.metric, reading.part),
                at_ns,
                int(reading.value),
                most_per_s=_MOST_PER_S,
            )
            if gain is None:
                continue
            start_ns, value = gain.start_ns, gain.value
        if reading.kind is Kind.BUSY_US:
            # The clocks of numerator and denominator differ by a tick of the kernel's.
            value = min(1.0, value / _US_PER_S / ((at_ns - start_ns) / 1e9))
        found.append(
            Sample(
                metric=reading.metric,
                value=value,
                start_ns=start_ns,
                end_ns=at_ns,
                source=source,
                part=reading.part,
            )
        )
    return found


@dataclass(slots=True)
class JobTime:
    """CPU time of a job as a counter, though its processes come and go.

    The first reading of a process counts for nothing: what it used before may be long ago.
    """

    used_us: int = 0
    _last: dict[object, int] = field(default_factory=dict)

    def add(self, by_process: dict[object, int]) -> int:
        """All time used since the first call, from the time in µs of each process now."""
        for process, used_us in by_process.items():
            self.used_us += max(0, used_us - self._last.get(process, used_us))
        self._last = by_process
        return self.used_us
