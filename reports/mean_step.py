"""The mean step of each rank and the parts it is made of, as the page and the terminal show it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from tracekit.findings import Severity, Status
from tracekit.units import Unit, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracekit.results import Parts, Result

MAX_ROWS = 64
"""Ranks a table or a bar chart shows before it is cut to the extremes: more fit no screen."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a step: its field in `Parts`, its name for people, its letter in a terminal."""

    field: str
    label: str
    letter: str
    meaning: str


PARTS = (
    Part(
        "exposed_compute_ns",
        "Exposed compute",
        "C",
        "compute kernels with no communication running",
    ),
    Part("overlapped_ns", "Overlapped", "o", "compute and communication at the same time"),
    Part("exposed_waiting_ns", "Exposed waiting", "w", "in a collective, waiting for a later rank"),
    Part(
        "exposed_transfer_ns", "Exposed transfer", "t", "in a collective, data moving, no compute"
    ),
    Part(
        "unsplit_communication_ns",
        "Unsplit communication",
        "u",
        "communication that cannot be split",
    ),
    Part("exposed_copy_ns", "Exposed copy", "m", "copies and memsets with nothing else running"),
    Part("idle_ns", "Idle", ".", "nothing runs on the device"),
)
"""The parts of a step, in the order they are stacked; they add up to its duration exactly."""

COMPUTE, WAITING, IDLE = (0, 1), 2, 6
COMMUNICATION = (2, 3, 4)


class Basis(StrEnum):
    """What the mean of a rank is taken over."""

    AVERAGED = "averaged steps"
    ALL_STEPS = "all steps"
    WHOLE = "whole trace"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanStep:
    """The mean step of one device: its duration and its parts, in the order of `PARTS`."""

    rank: int
    device: int
    n_steps: int
    dur_ns: float
    parts_ns: tuple[float, ...]


def basis(result: Result) -> Basis:
    """Averaged steps where there are any, else all steps, else the whole trace."""
    if any(parts.is_averaged for parts in result.breakdown):
        return Basis.AVERAGED
    return Basis.ALL_STEPS if result.breakdown else Basis.WHOLE


def mean_steps(result: Result) -> tuple[MeanStep, ...]:
    """The mean step of every device, sorted by rank and device; empty when nothing was measured."""
    match basis(result):
        case Basis.AVERAGED:
            return means_of(parts for parts in result.breakdown if parts.is_averaged)
        case Basis.ALL_STEPS:
            return means_of(result.breakdown)
        case _:
            return means_of(result.whole)


def means_of(parts: Iterable[Parts]) -> tuple[MeanStep, ...]:
    """The mean over the given rows of each device, sorted by rank and device."""
    devices: defaultdict[tuple[int, int], list[Parts]] = defaultdict(list)
    for row in parts:
        devices[row.rank, row.device].append(row)
    return tuple(_mean_step(devices[key]) for key in sorted(devices))


def job_mean(means: Sequence[MeanStep]) -> tuple[float, ...]:
    """The mean of each part over all devices, in ns, ordered as `PARTS`; empty without devices."""
    if not means:
        return ()
    return tuple(sum(mean.parts_ns[i] for mean in means) / len(means) for i in range(len(PARTS)))


def own_ns(mean: MeanStep) -> float:
    """The step less exposed waiting: the rank with the longest own time makes the others wait."""
    return mean.dur_ns - mean.parts_ns[WAITING]


def faulty_ranks(result: Result) -> tuple[int, ...]:
    """Ranks at fault in a warning or a critical finding, sorted.

    A finding about more than half of the ranks is about the job: it singles nobody out.
    """
    serious = (Severity.CRITICAL, Severity.WARNING)
    found = (f for f in result.findings if f.status is Status.FOUND and f.severity in serious)
    pointed = (f for f in found if 2 * len(f.ranks) <= len(result.run.ranks))
    return tuple(sorted({rank for finding in pointed for rank in finding.ranks}))


def shown_rows(means: Sequence[MeanStep], faulty: Iterable[int]) -> tuple[int, ...]:
    """Positions of the devices to show: all, or the ranks at fault and the extremes of own time.

    At most `MAX_ROWS`. All of them in their order; a selection by own time, longest first.
    """
    if len(means) <= MAX_ROWS:
        return tuple(range(len(means)))
    by_own_ns = sorted(range(len(means)), key=lambda i: (-own_ns(means[i]), i))
    blamed = set(faulty)
    chosen = [i for i in by_own_ns if means[i].rank in blamed][: MAX_ROWS // 2]
    rest = [i for i in by_own_ns if i not in set(chosen)]
    n_worst = MAX_ROWS * 3 // 4 - len(chosen)
    n_best = MAX_ROWS - len(chosen) - n_worst
    kept = {*chosen, *rest[:n_worst], *rest[-n_best:]}
    return tuple(i for i in by_own_ns if i in kept)


def row_labels(devices: Sequence[tuple[int, int]]) -> tuple[str, ...]:
    """A label per (rank, device): the rank alone, unless a rank has several devices."""
    several = len({rank for rank, _ in devices}) < len(devices)
    return tuple(f"rank {rank}" + f", device {device}" * several for rank, device in devices)


def basis_sentence(result: Result) -> str:
    """Say what the mean is taken over and how long the mean step is."""
    step = text(result.run.step_ns, Unit.NS)
    match basis(result):
        case Basis.AVERAGED:
            n_steps = len(result.run.averaged_steps)
            return f"Mean of {n_steps} averaged {'step' if n_steps == 1 else 'steps'}, {step} long."
        case Basis.ALL_STEPS:
            return "Mean of all recorded steps: no step was complete enough to be averaged alone."
        case _:
            return (
                "Over the whole trace, from the first to the last device event: no step was found."
            )


def _mean_step(rows: list[Parts]) -> MeanStep:
    """The mean of one device's rows."""
    n_rows = len(rows)
    return MeanStep(
        rank=rows[0].rank,
        device=rows[0].device,
        n_steps=n_rows,
        dur_ns=sum(row.dur_ns for row in rows) / n_rows,
        parts_ns=tuple(sum(getattr(row, part.field) for row in rows) / n_rows for part in PARTS),
    )
