"""How a series goes over steps, in words."""

from __future__ import annotations

import pytest

from tracekit.derive.patterns import Course, pattern

MS = 1_000_000


@pytest.mark.parametrize(
    ("series", "course", "words"),
    [
        ([5 * MS] * 6, Course.FIXED, "in every step"),
        ([5 * MS, 5 * MS, 0, 5 * MS, 5 * MS], Course.FIXED, "in 4 of 5 steps"),
        ([0, 0, 5 * MS, 0, 0, 0, 0, 0], Course.SPORADIC, "in 1 of 8 steps"),
        ([5 * MS, 0, 0, 0] * 3, Course.PERIODIC, "in every 4th step"),
        ([5 * MS, 0] * 4, Course.PERIODIC, "in every 2nd step"),
        ([0, 0, 5 * MS] * 3, Course.PERIODIC, "in every 3rd step"),
        (
            [MS, 2 * MS, 3 * MS, 4 * MS, 5 * MS, 6 * MS],
            Course.TRENDING,
            "more with every step, from 1.5 ms to 5.5 ms",
        ),
        ([0.0] * 6, Course.SPORADIC, "in 0 of 6 steps"),
        ([5 * MS], Course.FIXED, "in every step"),
    ],
)
def test_courses(series, course, words):
    found = pattern(series)
    assert (found.course, found.words) == (course, words)


def test_a_few_rising_steps_are_chance():
    assert pattern([MS, 2 * MS, 3 * MS, 4 * MS, 5 * MS]).course is Course.FIXED


def test_growth_of_less_than_a_half_is_no_trend():
    assert pattern([(100 + 5 * step) * MS for step in range(8)]).course is Course.FIXED


@pytest.mark.parametrize(("step", "words"), [(11, "11th"), (12, "12th"), (21, "21st")])
def test_ordinals(step, words):
    series = [5.0 * MS if number % step == 0 else 0.0 for number in range(3 * step)]
    assert pattern(series).words == f"in every {words} step"
