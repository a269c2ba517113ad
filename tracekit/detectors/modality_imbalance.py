"""Ranks get different shares of images, audio or video: their encoders take unequally long.

What it measures:
    Compute launched inside spans that name an encoder of another modality, on the ranks that run
    one, step by step; which rank has most may change with every step.

Formula:
    In a step: excess = max − mean over ranks of the encoder's forward time. LI = Σ max / Σ mean
    over averaged steps, of the encoder and of all other compute. Measured: Σ excess / (steps · T).

Threshold:
    Found when measured is at least `min_step_share`, LI of the encoder − 1 at least `min_uneven`
    (`min_host_uneven` without a device),
    and LI of the rest − 1 at most `max_even_share` of that (its backward pass is in the rest).
    Skipped where no span names an encoder.

Evidence:
    Encoder and other compute by rank; the longest rank of each step; the encoder's share.

What-if saving:
    Low: the forward pass of the encoder takes its mean, as far as others are seen to wait. High:
    the longest rank takes the median, and the backward pass, twice as long, goes with it.

Recommendation:
    Reorder samples within the global batch so that all ranks get the same cost of each modality.

References:
    https://arxiv.org/abs/2605.08962 (MegaScale-Omni).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.derive.averages import averages, mean_steps
from tracekit.derive.encoder_work import ENCODER, REST, WITH_BACKWARD, encoder_totals
from tracekit.derive.savings import saving
from tracekit.derive.work_totals import unevenness
from tracekit.detectors import Detector, finding, number, skipped
from tracekit.detectors._cures import IS_COMPUTE, even_or_as_peers
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

_UNNAMED = "no span in the traces names an encoder of images, audio or video. "


@dataclass(frozen=True, slots=True)
class Limits:
    """When unequal encoders count."""

    min_step_share: float = limit(0.02, Unit.SHARE, "Less than 2 % of a step is not worth a look.")
    min_uneven: float = limit(0.1, Unit.SHARE, "Equal batches differ by some per cent.")
    min_host_uneven: float = limit(
        0.25, Unit.SHARE, "Without a device, threads share processors: a control run shows 20 %."
    )
    max_even_share: float = limit(
        0.5, Unit.SHARE, "A slow device is as slow in the language model as in the encoder."
    )


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for the run."""
    totals = encoder_totals(run)
    if totals.is_empty():
        return (skipped(DETECTOR, f"{_UNNAMED}{DETECTOR.how}"),)
    n_steps, step_ns = max(len(averages(run).steps), 1), number(mean_steps(run)["dur_ns"].mean())
    uneven = unevenness(totals)
    encoder, rest = (imbalance(uneven, name, n_steps) for name in (ENCODER, REST))
    if encoder is None:
        return (skipped(DETECTOR, f"{_UNNAMED}{DETECTOR.how}"),)
    rest_uneven = rest.uneven if rest else 0.0
    share = min(encoder.excess_ns / step_ns, 1.0)
    level = Level.MEDIUM if n_steps > 1 else Level.LOW
    shown: dict[str, Any] = {
        "measured": Quantity(share, Unit.SHARE),
        "limit": Quantity(limits.min_step_share, Unit.SHARE),
        "confidence": Confidence(level, f"{n_steps} steps; spans show the forward pass only"),
        "evidence": (by_rank(totals, (ENCODER, REST), n_steps), _by_step(uneven)),
    }
    is_found = (
        share >= limits.min_step_share
        and encoder.uneven >= least_uneven(run, limits)
        and rest_uneven <= limits.max_even_share * encoder.uneven
    )
    if not is_found:
        return (finding(DETECTOR, Status.CLEAR, **shown),)
    return (
        finding(
            DETECTOR,
            Status.FOUND,
            title=f"The busiest encoder costs {text(encoder.excess_ns, Unit.NS)} of each step, "
            "in the forward pass alone",
            cause=Cause.MODALITY_IMBALANCE,
            ranks=at_fault(uneven, ENCODER),
            steps=averages(run).steps,
            saving=saving(
                min(encoder.excess_ns, waiting_ns(run)),
                WITH_BACKWARD * encoder.over_median_ns,
                step_ns,
                mean_steps(run).height,
                "low end: the encoder's forward pass takes its mean, as far as the others are seen "
                "to wait; high end: the longest takes the median, and a backward pass of twice the "
                "length with it; upper bound",
            ),
            why=f"the encoder of the longest rank takes {text(encoder.uneven, Unit.SHARE)} more "
            f"than the mean, all else {text(rest_uneven, Unit.SHARE)} more",
            **shown,
        ),
    )


def _by_step(uneven: pl.DataFrame) -> Evidence:
    rows = uneven.filter(pl.col("class") == ENCODER).sort("step", "stage")
    return Evidence(
        title="Encoder of the longest rank, by step",
        columns=(
            Column("step"),
            Column("rank"),
            Column("longest", Unit.NS),
            Column("mean", Unit.NS),
        ),
        rows=tuple(rows.select("step", "worst", "max_ns", "mean_ns").iter_rows()),
    )


DETECTOR = Detector(
    id="modality-imbalance",
    title="Ranks get different shares of images, audio or video",
    clear="Encoders take equally long on all ranks",
    needs=(),
    how='Name it: with c.phase("vision encoder"): … or torch.profiler.record_function.',
    min_ranks=2,
    limits=Limits,
    detect=detect,
    cure=even_or_as_peers(IS_COMPUTE),
    published=(Published(16, "MegaScale-Omni", "2605.08962"),),
)
