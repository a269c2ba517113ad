"""A job of several ranks whose traces hold no communication: it was not recorded, or not made.

What it measures:
    Collectives and messages of each rank that recorded kernels.

Formula:
    measured = ranks with kernels and without any collective or message.

Threshold:
    Found when measured is at least `min_ranks`. It is a note about the capture, never a warning.
    Skipped where the job has one rank.

Evidence:
    Kernels and collectives by rank.

What-if saving:
    None: nothing is known of what was not recorded.

Recommendation:
    Record a whole step, with communication in it.

References:
    https://github.com/facebookresearch/HolisticTraceAnalysis/issues/360
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.detectors import Detector, finding, rank_list, skipped
from tracekit.findings import (
    Cause,
    Change,
    Column,
    Confidence,
    Evidence,
    Finding,
    Level,
    Recommendation,
    Severity,
    Status,
)
from tracekit.schema import COLLECTIVES, KERNELS
from tracekit.units import Quantity, Unit, limit

if TYPE_CHECKING:
    from tracekit.store import Run

MAX_ROWS = 16
ADVICE = Recommendation(
    "Record whole steps: a window that ends before the gradients are reduced holds no collective. "
    "Ranks that never exchange anything (replicas that serve) are no job: analyse them one by one.",
    Change.SETTING,
    ("with tracekit.collect(run_dir) as c: ... c.step()  # whole steps on every rank",),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """How many ranks must lack communication."""

    min_ranks: int = limit(1, Unit.COUNT, "Of a rank without it nothing can be said of waiting.")


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for the run."""
    if run.manifest.world_size < 2:
        return (skipped(DETECTOR, "one rank has nobody to exchange anything with"),)
    counts = {
        capture.rank: tuple(capture.n_rows.get(table.name, 0) for table in (KERNELS, COLLECTIVES))
        for capture in run.manifest.captures
    }
    silent = [rank for rank, (kernels, calls) in counts.items() if kernels and not calls]
    measured, least = Quantity(len(silent), Unit.COUNT), Quantity(limits.min_ranks, Unit.COUNT)
    if len(silent) < limits.min_ranks:
        return (finding(DETECTOR, Status.CLEAR, measured=measured, limit=least),)
    which = "any rank" if len(silent) == len(counts) else f"rank {rank_list(silent)}"
    return (
        finding(
            DETECTOR,
            Status.FOUND,
            title=f"No communication was recorded on {which} of {run.manifest.world_size}",
            severity=Severity.INFO,
            cause=Cause.UNKNOWN,
            ranks=tuple(silent),
            measured=measured,
            limit=least,
            confidence=Confidence(Level.HIGH, "no kernel and no call of a collective is there"),
            recommendation=ADVICE,
            evidence=(_by_rank(counts),),
        ),
    )


def _by_rank(counts: dict[int, tuple[int, ...]]) -> Evidence:
    return Evidence(
        title="What ranks recorded",
        columns=(
            Column("rank"),
            Column("kernels", Unit.COUNT),
            Column("collectives and messages", Unit.COUNT),
        ),
        rows=tuple((rank, *found) for rank, found in list(counts.items())[:MAX_ROWS]),
    )


DETECTOR = Detector(
    id="no-communication-seen",
    title="No communication was recorded",
    clear="All ranks recorded communication",
    needs=(KERNELS,),
    how="Record CUDA activity.",
    limits=Limits,
    detect=detect,
)
