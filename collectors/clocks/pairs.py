"""One host's wall clock against its steady clock, so that a step of the wall clock is seen.

NTP slews both clocks alike, so the distance between them changes only when the wall clock is set.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tracekit.facts import ClockPair

if TYPE_CHECKING:
    from collections.abc import Callable

N_SANDWICHES = 16
"""One without an interruption in it is enough, and this many take less than 10 µs."""


def clock_pair(
    now_ns: Callable[[], int] = time.time_ns, steady_ns: Callable[[], int] = time.monotonic_ns
) -> ClockPair:
    """Both clocks now: the tightest of several readings of one between two of the other."""
    best: ClockPair | None = None
    for _ in range(N_SANDWICHES):
        before_ns, realtime_ns, after_ns = steady_ns(), now_ns(), steady_ns()
        error_ns = (after_ns - before_ns + 1) // 2
        if best is None or error_ns < best.error_ns:
            middle_ns = (before_ns + after_ns) // 2
            best = ClockPair(realtime_ns=realtime_ns, monotonic_ns=middle_ns, error_ns=error_ns)
    assert best is not None
    return best


def steps_between(first: ClockPair, last: ClockPair) -> int | None:
    """Nanoseconds that the wall clock was set forward between two pairs of one boot.

    Null where the clocks kept their distance to within the errors of the pairs.
    """
    before_ns = first.realtime_ns - first.monotonic_ns
    jump_ns = last.realtime_ns - last.monotonic_ns - before_ns
    return jump_ns if abs(jump_ns) > first.error_ns + last.error_ns else None
