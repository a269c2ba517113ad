"""How much durations vary from one step to the next, as measured on public traces.

A duration is its nominal value times a log-normal factor, which for a few in a hundred is drawn
several times wider: short kernels vary most. `docs/simulator.md` holds the figures of the traces
and the command that measures them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

SHORT_NS, MEDIUM_NS = 10_000, 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Spread of ln(duration / nominal): of kernels by length, and of calls on the host.

    `tail_share` of all draws are `tail_factor` times as wide. The defaults are those of eight H100
    ranks; `NONE` switches noise off.
    """

    short_spread: float = 0.052
    medium_spread: float = 0.017
    long_spread: float = 0.0075
    call_spread: float = 0.33
    tail_share: float = 0.04
    tail_factor: float = 5.0

    def kernel_ns(self, random: random.Random, nominal_ns: float) -> int:
        """Duration of a kernel; never below 1 µs, the least that traces of kernels show."""
        spread = (
            self.short_spread
            if nominal_ns < SHORT_NS
            else self.medium_spread
            if nominal_ns < MEDIUM_NS
            else self.long_spread
        )
        return max(1_000, self._drawn(random, nominal_ns, spread))

    def call_ns(self, random: random.Random, nominal_ns: float) -> int:
        """Duration of a call on the host."""
        return self._drawn(random, nominal_ns, self.call_spread)

    def _drawn(self, random: random.Random, nominal_ns: float, spread: float) -> int:
        is_tail = random.random() < self.tail_share
        wide = spread * (self.tail_factor if is_tail else 1.0)
        return int(nominal_ns * random.lognormvariate(0.0, wide))


def varied(factor: float) -> Noise:
    """The usual noise with kernels that vary by another factor."""
    usual = Noise()
    return Noise(
        short_spread=usual.short_spread * factor,
        medium_spread=usual.medium_spread * factor,
        long_spread=usual.long_spread * factor,
    )


NONE = Noise(short_spread=0.0, medium_spread=0.0, long_spread=0.0, call_spread=0.0)
