"""A step of the wall clock shows as a change of its distance to the steady one."""

from __future__ import annotations

import time

import pytest

from tracekit.collectors.clocks.pairs import clock_pair, steps_between
from tracekit.facts import ClockPair


def test_the_pair_is_of_one_moment():
    before_ns = time.time_ns(), time.monotonic_ns()
    pair = clock_pair()
    after_ns = time.time_ns(), time.monotonic_ns()
    assert before_ns[0] <= pair.realtime_ns <= after_ns[0]
    assert before_ns[1] <= pair.monotonic_ns <= after_ns[1]
    assert 0 <= pair.error_ns < 1_000_000


def test_the_tightest_sandwich_is_kept():
    # Steady readings before and after: 15 pairs 1000 ns apart, and one 10 ns apart, 7 before that.
    steady_ns = iter([*(t for k in range(15) for t in (k * 5000, k * 5000 + 1000)), 80_000, 80_010])
    real_ns = iter(range(100, 116))
    pair = clock_pair(lambda: next(real_ns), lambda: next(steady_ns))
    assert pair == ClockPair(realtime_ns=115, monotonic_ns=80_005, error_ns=5)


def before_and_after(jump_ns):
    """Pairs 600 ns apart, with errors of 20 and 16 ns; the wall clock is set in between."""
    start_ns = 1_700_000_000_000_000_000
    return (
        ClockPair(realtime_ns=start_ns, monotonic_ns=5, error_ns=20),
        ClockPair(realtime_ns=start_ns + 600 + jump_ns, monotonic_ns=605, error_ns=16),
    )


@pytest.mark.parametrize("jump_ns", [1_000_000_000, -37, 38, -(10**15)])
def test_a_step_beyond_the_errors_is_measured(jump_ns):
    assert steps_between(*before_and_after(jump_ns)) == jump_ns


@pytest.mark.parametrize("jump_ns", [0, 36, -36])
def test_what_the_errors_explain_is_no_step(jump_ns):
    assert steps_between(*before_and_after(jump_ns)) is None


def test_the_clocks_of_this_host_keep_their_distance():
    first = clock_pair()
    time.sleep(0.05)
    jump_ns = steps_between(first, clock_pair())
    assert jump_ns is None or abs(jump_ns) < 1_000_000  # unless NTP sets the clock just now
