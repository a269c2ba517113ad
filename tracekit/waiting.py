"""Who waited for whom, as a result holds it: what the sections of a report about waiting draw."""

from __future__ import annotations

from dataclasses import dataclass

WHY_LATE, LATENESS, BY_STEP = "Why it was late", "lateness", "Lateness by step"
"""Titles of tables of evidence that a report draws, and the row that others sum to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitedFor:
    """Exposed waiting of one rank (the victim) that another one caused, in ns a step."""

    culprit: int
    victim: int
    per_step_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWaiting:
    """One rank of the mean step: its place, how long it computed and waited, and what it caused.

    `pipeline` is the lowest rank of its pipeline, `stage` its place in it (0 where there is none).
    `course` says how its lateness goes over the steps: fixed, trending, periodic, now and then.
    """

    rank: int
    pipeline: int
    stage: int
    compute_ns: float
    waiting_ns: float
    caused_ns: float
    late_ns: float
    course: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLateness:
    """Lateness of one rank in one step, summed over collectives, and the waiting it caused."""

    rank: int
    step: int
    late_ns: float
    caused_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One member of a collective: when it entered and left, in ns since the first one entered."""

    rank: int
    entered_ns: int
    left_ns: int
    is_late: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """One collective, with the arrival of each of its members.

    `is_aligned`: whether all times are on one clock; else every member's are seen from the common
    end. `error_ns` is how far they may be off, `transfer_ns` what was left once all had entered.
    """

    culprit: int
    step: int | None
    group: str
    operation: str
    start_ns: int
    error_ns: int
    transfer_ns: int | None
    is_aligned: bool
    arrivals: tuple[Arrival, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Who waited for whom over the averaged steps.

    `matrix` holds the pairs that waited most, `total_per_step_ns` the sum over all pairs, so that a
    reader sees how much is left out. `meetings` are those in which most waiting was caused.
    """

    total_per_step_ns: float
    matrix: tuple[WaitedFor, ...]
    ranks: tuple[RankWaiting, ...]
    by_step: tuple[StepLateness, ...]
    meetings: tuple[Meeting, ...]
