"""Differences of counters that wrap or begin again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.collectors.telemetry.counters import Counters, Gain, difference

WIDTHS = st.sampled_from([16, 32, 64])
SECOND_NS = 10**9


@st.composite
def counted(draw):
    """A counter's width, its reading, and what it gains: less than it can count."""
    bits = draw(WIDTHS)
    before = draw(st.integers(0, 2**bits - 1))
    most = draw(st.integers(0, 2**bits - 1))
    return bits, before, draw(st.integers(0, most)), most


@given(counted())
def test_what_a_counter_gains_is_found_whether_it_wraps_or_not(case):
    bits, before, gained, most = case
    after = (before + gained) % 2**bits
    assert difference(before, after, bits=bits, most=most) == gained


@given(WIDTHS, st.integers(0, 2**64), st.integers(0, 2**64), st.integers(0, 2**65))
def test_a_difference_is_never_negative_nor_more_than_there_can_be(bits, before, after, most):
    gained = difference(before % 2**bits, after % 2**bits, bits=bits, most=most)
    assert gained is None or 0 <= gained <= most < 2**bits


@given(counted())
def test_what_may_have_wrapped_twice_is_no_difference(case):
    bits, before, gained, _ = case
    assert difference(before, (before + gained) % 2**bits, bits=bits, most=2**bits) is None


@pytest.mark.parametrize(
    ("before", "after", "bits", "gained"),
    [
        (10, 30, 32, 20),
        (2**32 - 10, 5, 32, 15),  # wraps
        (2**64 - 1, 0, 64, 1),
        (5_000_000, 5, 64, None),  # begins again
        (2**31, 5, 32, None),  # half of the range away from a wrap
        (0, 10**9, 64, None),  # more than it can have gained
    ],
)
def test_a_wrap_is_small_and_a_reset_is_not(before, after, bits, gained):
    assert difference(before, after, bits=bits, most=1000) == gained


def gains(*readings, most_per_s=1000, bits=64):
    counters = Counters()
    return [
        counters.gain("one", at_ns, value, most_per_s=most_per_s, bits=bits)
        for at_ns, value in readings
    ]


def test_the_first_reading_gives_nothing():
    assert gains((SECOND_NS, 7), (2 * SECOND_NS, 9)) == [None, Gain(SECOND_NS, 2)]


def test_after_a_reset_it_goes_on_from_there():
    readings = [(SECOND_NS * second, value) for second, value in enumerate([5000, 0, 10])]
    assert gains(*readings) == [None, None, Gain(SECOND_NS, 10)]


def test_the_same_stamp_is_the_same_reading():
    # The driver has not brought its counter up to date: its next value spans both periods.
    readings = [(0, 100), (0, 100), (SECOND_NS, 300)]
    assert gains(*readings) == [None, None, Gain(0, 200)]


def test_a_clock_set_back_gives_nothing():
    assert gains((2 * SECOND_NS, 1), (SECOND_NS, 2), (2 * SECOND_NS, 3)) == [
        None,
        None,
        Gain(SECOND_NS, 1),
    ]


def test_the_most_grows_with_the_time_between():
    assert gains((0, 0), (SECOND_NS, 1001))[1] is None
    assert gains((0, 0), (2 * SECOND_NS, 1001))[1] == Gain(0, 1001)


def test_counters_are_kept_apart():
    counters = Counters()
    for key in ("one", "other"):
        assert counters.gain(key, 0, 5, most_per_s=10) is None
    assert counters.gain("other", SECOND_NS, 6, most_per_s=10) == Gain(0, 1)
