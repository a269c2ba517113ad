"""Ranks get sequences of different lengths: attention differs between them, other work does not.

What it measures:
    Time in attention kernels on the ranks that have the same layers, step by step: which rank has
    most may change with every step. Matrix products grow with the tokens, attention with the square
    of a sequence's length, so that batches of equal tokens differ in attention alone.

Formula:
    In a step: excess = max − mean of the ranks' attention time (of the stage where that is
    largest); LI = Σ max / Σ mean over averaged steps, of attention and of matrix products.
    Measured: Σ excess / (steps · T). Where the loop told the lengths of its samples, r is the
    correlation of attention with the sum of their squares over ranks and steps.

Threshold:
    Found when measured is at least `min_step_share`, LI of attention − 1 at least `min_uneven`
    (`min_host_uneven` without a device), and
    LI of matrix products − 1 at most `max_even_share` of that: what is slower in all classes is no
    matter of lengths.

Evidence:
    Attention and matrix products by rank; the step's longest rank; the correlation.

What-if saving:
    Low: attention is balanced, and takes its mean, as far as others are seen to wait. High: the
    longest rank takes the median.

Recommendation:
    Balance the sum of squared lengths over ranks, not samples or tokens; split long sequences.

References:
    https://arxiv.org/abs/2509.21841 (Zeppelin), https://arxiv.org/abs/2505.05713 (5.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.derive.averages import averages, mean_steps
from tracekit.derive.samples import squared_lengths
from tracekit.derive.savings import saving
from tracekit.derive.work_classes import ATTENTION, LINEAR
from tracekit.derive.work_totals import unevenness, work_totals
from tracekit.detectors import Detector, finding, number, skipped
from tracekit.detectors._cures import even_or_as_peers
from tracekit.detectors._imbalance import (
    at_fault,
    by_rank,
    imbalance,
    least_uneven,
    waiting_ns,
)
from tracekit.findings import Cause, Column, Confidence, Evidence, Finding, Level, Published, Status
from tracekit.units import Quantity, Unit, limit, text

if TYPE_CHECKING:
    from tracekit.store import Run

MIN_CORRELATION = 0.9


@dataclass(frozen=True, slots=True)
class Limits:
    """When unequal lengths count."""

    min_step_share: float = limit(0.02, Unit.SHARE, "Less than 2 % of a step is not worth a look.")
    min_uneven: float = limit(
        0.1, Unit.SHARE, "Attention of equal batches differs by some per cent between ranks."
    )
    min_host_uneven: float = limit(
        0.25, Unit.SHARE, "Without a device, threads share processors: a control run shows 20 %."
    )
    max_even_share: float = limit(
        0.5, Unit.SHARE, "Matrix products grow with the length, attention with its square."
    )


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for the run."""
    totals, step_ns = work_totals(run), number(mean_steps(run)["dur_ns"].mean())
    n_steps = max(len(averages(run).steps), 1)
    uneven = unevenness(totals)
    attention = imbalance(uneven, ATTENTION, n_steps)
    if attention is None:
        return (skipped(DETECTOR, f"no attention kernel in the averaged steps. {DETECTOR.how}"),)
    linear = imbalance(uneven, LINEAR, n_steps)
    linear_uneven = linear.uneven if linear else 0.0
    correlation = _correlation(run, totals)
    share = min(attention.excess_ns / step_ns, 1.0)
    shown: dict[str, Any] = {
        "measured": Quantity(share, Unit.SHARE),
        "limit": Quantity(limits.min_step_share, Unit.SHARE),
        "confidence": _confidence(n_steps, correlation),
        "evidence": (by_rank(totals, (ATTENTION, LINEAR), n_steps), _by_step(uneven)),
    }
    is_found = (
        share >= limits.min_step_share
        and attention.uneven >= least_uneven(run, limits)
        and linear_uneven <= limits.max_even_share * attention.uneven
    )
    if not is_found:
        return (finding(DETECTOR, Status.CLEAR, **shown),)
    return (
        finding(
            DETECTOR,
            Status.FOUND,
            title=f"The longest sequences cost {text(attention.excess_ns, Unit.NS)} of each step",
            cause=Cause.SEQUENCE_LENGTH_IMBALANCE,
            ranks=at_fault(uneven, ATTENTION),
            steps=averages(run).steps,
            saving=saving(
                min(attention.excess_ns, waiting_ns(run)),
                attention.over_median_ns,
                step_ns,
                mean_steps(run).height,
                "low end: lengths are balanced, so that attention takes the mean of its step, as "
                "far as the others are seen to wait; high end: the longest rank takes the median; "
                "upper bound",
            ),
            why=f"attention of the longest rank takes {text(attention.uneven, Unit.SHARE)} more "
            f"than the mean, its matrix products {text(linear_uneven, Unit.SHARE)} more",
            **shown,
        ),
    )


def _correlation(run: Run, totals: pl.DataFrame) -> float | None:
    """Of attention with the squared lengths that the loop told, over ranks and steps; else None."""
    attention = totals.filter(pl.col("class") == ATTENTION)
    both = attention.join(squared_lengths(run), on=["rank", "step"], validate="1:1")
    if both.height < 3 or both["told"].n_unique() < 2:
        return None
    value = both.select(pl.corr("total_ns", "told")).item()
    return float(value) if value is not None and value == value else None  # noqa: PLR0124 - NaN


def _confidence(n_steps: int, correlation: float | None) -> Confidence:
    if n_steps == 1:
        return Confidence(Level.LOW, "one step only")
    if correlation is None:
        why = f"mean of {n_steps} steps; lengths were not told (c.samples(lengths=…))"
        return Confidence(Level.MEDIUM, why)
    level = Level.HIGH if correlation >= MIN_CORRELATION else Level.MEDIUM
    why = f"attention and the squared lengths that the loop told correlate by {correlation:.2f}"
    return Confidence(level, why)


def _by_step(uneven: pl.DataFrame) -> Evidence:
    rows = uneven.filter(pl.col("class") == ATTENTION).sort("step", "stage")
    return Evidence(
        title="Attention of the longest rank, by step",
        columns=(
            Column("step"),
            Column("stage"),
            Column("rank"),
            Column("longest", Unit.NS),
            Column("mean", Unit.NS),
        ),
        rows=tuple(rows.select("step", "stage", "worst", "max_ns", "mean_ns").iter_rows()),
    )


DETECTOR = Detector(
    id="sequence-length-imbalance",
    title="Ranks get sequences of different lengths",
    clear="Attention is equally long on all ranks",
    needs=(),
    how="Record the same steps on all ranks, and tell lengths: c.samples(lengths=…).",
    min_ranks=2,
    limits=Limits,
    detect=detect,
    cure=even_or_as_peers(pl.col("type") == ATTENTION),
    published=(Published(31, "Zeppelin", "2509.21841"),),
)
