"""Differences of counters that wrap, or begin again when a driver is loaded again.

A smaller reading than before is either. What tells them apart is how much the counter can gain in
the time between: a wrap explains a small gain, a reset an impossible one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

_NS_PER_S = 10**9
_LEAST_NS = 10**7  # counters are brought up to date in steps of some ms


def difference(before: int, after: int, *, bits: int, most: int) -> int | None:
    """What a counter gained, modulo its width; null where that is more than it can have gained.

    Args:
        before: Reading at the start.
        after: Reading at the end.
        bits: Width of the counter.
        most: The most it can gain in the time between. From 2**bits on it may have wrapped more
            than once, which no reading shows: always null.
    """
    gained = (after - before) % (1 << bits)
    return gained if gained <= most < 1 << bits else None


@dataclass(frozen=True, slots=True)
class Gain:
    """What a counter gained since the reading before, which was at `start_ns`."""

    start_ns: int
    value: int


@dataclass(slots=True)
class Counters:
    """The last reading of each counter, by key."""

    _last: dict[object, tuple[int, int]] = field(default_factory=dict)

    def gain(
        self, key: object, at_ns: int, reading: int, *, most_per_s: int, bits: int = 64
    ) -> Gain | None:
        """What the counter gained since its last reading; null at the first, and after a reset.

        A reading of the same time as the last is the same reading again: null, and not kept.
        """
        last = self._last.get(key)
        if last and last[0] == at_ns:
            return None
        self._last[key] = (at_ns, reading)
        if not last or at_ns < last[0]:  # the clock was set back
            return None
        elapsed_ns = max(at_ns - last[0], _LEAST_NS)
        gained = difference(last[1], reading, bits=bits, most=most_per_s * elapsed_ns // _NS_PER_S)
        return None if gained is None else Gain(last[0], gained)
