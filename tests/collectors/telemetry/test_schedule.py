"""When the next tick is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.collectors.telemetry.schedule import next_tick


@pytest.mark.parametrize(
    ("last", "elapsed_ns", "following"),
    [
        (0, 3, 1),  # tick 1 is due at 100
        (0, 100, 1),
        (0, 101, 2),  # tick 1 was missed
        (4, 950, 10),  # 5 to 9 were
        (4, 380, 5),  # awake before its time: a tick is not done twice
    ],
)
def test_ticks_are_multiples_of_the_period(last, elapsed_ns, following):
    assert next_tick(last, elapsed_ns, 100) == following


@given(st.integers(0, 10**6), st.integers(0, 10**18), st.integers(1, 10**10))
def test_the_next_tick_is_the_first_that_is_neither_done_nor_past(last, elapsed_ns, every_ns):
    following = next_tick(last, elapsed_ns, every_ns)
    assert following > last
    assert following * every_ns >= elapsed_ns
    assert following == last + 1 or (following - 1) * every_ns < elapsed_ns
