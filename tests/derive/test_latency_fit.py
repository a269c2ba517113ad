"""Latency and bandwidth from the medians of several sizes."""

from __future__ import annotations

import pytest

from tracekit.derive.latency_fit import line

SIZES = [1e3, 1e5, 1e7, 1e9]


def test_a_line_is_found_again():
    found = line(SIZES, [20_000 + 0.01 * size for size in SIZES], [10, 5, 2, 1])
    assert found.latency_ns == pytest.approx(20_000)
    assert found.ns_per_byte == pytest.approx(0.01)
    assert found.error_share == pytest.approx(0, abs=1e-9)


def test_neither_term_is_negative():
    falling = line(SIZES, [30_000, 29_000, 28_000, 27_000], [1] * 4)
    assert falling.ns_per_byte == 0
    assert 27_000 < falling.latency_ns < 30_000
    through_zero = line([1e6, 4e6, 16e6], [9_000, 40_000, 170_000], [1] * 3)
    assert (through_zero.latency_ns, through_zero.ns_per_byte) == (0, pytest.approx(0.01, rel=0.06))


@pytest.mark.parametrize(
    ("sizes", "times"),
    [
        ([1e3, 1e6], [10, 20]),  # two sizes fit any line
        ([1e6, 2e6, 3e6], [10, 20, 30]),  # too close together
        ([0, 0, 0, 1e6], [10, 20, 30, 40]),  # barriers have no size
        ([], []),
    ],
)
def test_too_little_makes_no_line(sizes, times):
    assert line(sizes, times, [1] * len(sizes)) is None
