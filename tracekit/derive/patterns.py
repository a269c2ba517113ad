"""How something goes over steps: in each of them, in every k-th, more and more, or now and then."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from tracekit.derive.periods import period
from tracekit.units import Unit, text

if TYPE_CHECKING:
    from collections.abc import Sequence

MIN_FIXED_SHARE = 0.6
"""In fewer steps than this it comes and goes."""
MIN_TREND_STEPS = 6
"""Fewer steps rise by chance: one order of five in 24 is nearly sorted."""
MIN_CONCORDANT_SHARE = 0.8
"""Pairs of steps of which the later one is larger."""
MIN_GROWTH = 1.5
"""Mean of the last third over that of the first: less is drift of no matter."""


class Course(StrEnum):
    """How something goes over the steps."""

    FIXED = "fixed"
    TRENDING = "trending"
    PERIODIC = "periodic"
    SPORADIC = "now and then"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A course, and half a sentence for people."""

    course: Course
    words: str


def pattern(series_ns: Sequence[float]) -> Pattern:
    """The course of a series of one value in ns a step, none left out; 0 where there was none."""
    n_steps = len(series_ns)
    happened = sorted(value for value in series_ns if value > 0)
    large = happened[len(happened) // 2] / 2 if happened else 0.0
    n_large = sum(value > large for value in series_ns)
    third = max(n_steps // 3, 1)
    first, last = _mean(series_ns[:third]), _mean(series_ns[-third:])
    if _is_rising(series_ns) and last >= MIN_GROWTH * first:
        grown = f"from {text(first, Unit.NS)} to {text(last, Unit.NS)}"
        return Pattern(Course.TRENDING, f"more with every step, {grown}")
    every = period([round(value) for value in series_ns])
    if every:
        return Pattern(Course.PERIODIC, f"in every {_ordinal(every)} step")
    if n_large >= MIN_FIXED_SHARE * n_steps:
        often = "in every step" if n_large == n_steps else f"in {n_large} of {n_steps} steps"
        return Pattern(Course.FIXED, often)
    return Pattern(Course.SPORADIC, f"in {n_large} of {n_steps} steps")


def _is_rising(series_ns: Sequence[float]) -> bool:
    n_steps = len(series_ns)
    if n_steps < MIN_TREND_STEPS:
        return False
    pairs = [(a, b) for at, a in enumerate(series_ns) for b in series_ns[at + 1 :]]
    return sum(b > a for a, b in pairs) >= MIN_CONCORDANT_SHARE * len(pairs)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number // 10 != 1 else "th"
    return f"{number}{ending}"
