"""How much durations vary from one step to the next, as measured on public traces.

A kernel takes its nominal time, times a log-normal factor that for a few in a hundred is drawn
several times wider; short kernels vary most. A call on the host varies as well, and a few in a
hundred are held up. `docs/simulator.md` holds the figures and the command that measures them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

SHORT_NS, MEDIUM_NS = 10_000, 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Spread of ln(duration / nominal): of kernels by length, and of calls on the host.

    `tail_share` of kernels under 100 µs vary `tail_factor` times as much: longer ones average that
    out. The same share of calls is held up, by `pause_ns` on average. The defaults are those of
    eight H100 ranks.
    """

    short_spread: float = 0.052
    medium_spread: float = 0.017
    long_spread: float = 0.0085
    call_spread: float = 0.25
    tail_share: float = 0.05
    tail_factor: float = 8.0
    pause_ns: float = 12_000

    def kernel_ns(self, random: random.Random, nominal_ns: float) -> int:
        """Duration of a kernel; never below 1 µs, the least that traces of kernels show."""
        wide = self.long_spread
        if nominal_ns < MEDIUM_NS:
            is_tail = random.random() < self.tail_share
            spread = self.short_spread if nominal_ns < SHORT_NS else self.medium_spread
            wide = spread * (self.tail_factor if is_tail else 1.0)
        return max(1_000, int(nominal_ns * random.lognormvariate(0.0, wide)))

    def call_ns(self, random: random.Random, nominal_ns: float) -> int:
        """Duration of a call on the host."""
        is_tail = random.random() < self.tail_share
        pause_ns = random.expovariate(1.0) * self.pause_ns if is_tail else 0.0
        return int(nominal_ns * random.lognormvariate(0.0, self.call_spread) + pause_ns)


NONE = Noise(short_spread=0, medium_spread=0, long_spread=0, call_spread=0, pause_ns=0)


def varied(factor: float) -> Noise:
    """The usual noise with kernels that vary by another factor."""
    usual = Noise()
    return replace(
        usual,
        short_spread=usual.short_spread * factor,
        medium_spread=usual.medium_spread * factor,
        long_spread=usual.long_spread * factor,
    )
