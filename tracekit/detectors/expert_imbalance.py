"""Some experts get more tokens than others, and their ranks hold up every layer.

What it measures:
    Time of the experts' compute on each rank, layer by layer: the exchange behind a layer waits for
    the rank with most tokens, and that may be another one in every layer, so that totals look even.

Formula:
    In a layer (forward or backward) of a group: excess = max − mean over ranks of the experts'
    time. Measured: Σ over layers and averaged steps of excess / (steps · T), in the group where it
    is largest. LI = Σ max / Σ mean.

Threshold:
    Found when measured is at least `min_step_share`, LI − 1 at least `min_uneven`
    (`min_host_uneven` without a device), and the LI − 1
    of all compute outside of experts at most `max_even_share` of it: a slow device is slow in that
    too. Skipped where ranks exchange no tokens.

Evidence:
    Experts' time by rank, and in how many layers a rank was the longest; the worst layers.

What-if saving:
    Low: every layer takes its mean, as far as others are seen to wait. High: the longest rank
    takes the median of the others.

Recommendation:
    Balance experts: an auxiliary loss or bias, a capacity limit, hot experts replicated or moved.

References:
    https://github.com/NVIDIA/Megatron-LM/pull/6468 (gain = max − mean a layer),
    https://arxiv.org/abs/2505.05713
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.derive.averages import averages, mean_steps
from tracekit.derive.expert_work import expert_layers, other_unevenness
from tracekit.derive.savings import saving
from tracekit.detectors import Detector, finding, number, skipped
from tracekit.detectors._cures import IS_COMPUTE, even_or_as_peers
from tracekit.detectors._imbalance import least_uneven, waiting_ns
from tracekit.findings import Cause, Column, Confidence, Evidence, Finding, Level, Status
from tracekit.schema import COLLECTIVES
from tracekit.units import Quantity, Unit, limit, text

if TYPE_CHECKING:
    from tracekit.store import Run

N_SHOWN = 16
_NO_EXPERTS = "ranks exchange no tokens, or run nothing between two exchanges: no experts seen. "
MIN_WORST_SHARE = 0.25
"""A rank that is the longest in fewer layers takes its turn."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When unequal experts count."""

    min_step_share: float = limit(0.02, Unit.SHARE, "Less than 2 % of a step is not worth a look.")
    min_uneven: float = limit(
        0.1, Unit.SHARE, "Balanced experts differ by some per cent from layer to layer."
    )
    min_host_uneven: float = limit(
        0.25, Unit.SHARE, "Without a device, threads share processors: a control run shows 20 %."
    )
    max_even_share: float = limit(
        0.5, Unit.SHARE, "A slow device is as slow outside of its experts as in them."
    )


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for the group of experts that loses most."""
    layers = _layers(expert_layers(run))
    if layers.is_empty():
        return (skipped(DETECTOR, f"{_NO_EXPERTS}{DETECTOR.how}"),)
    n_steps = max(len(averages(run).steps), 1)
    step_ns = number(mean_steps(run)["dur_ns"].mean())
    worst = _worst(layers)
    own = expert_layers(run).filter(group=worst)
    layers = layers.filter(group=worst)
    excess_ns = number(layers["excess_ns"].sum()) / n_steps
    uneven = number(layers["excess_ns"].sum()) / max(number(layers["mean_ns"].sum()), 1.0)
    share = min(excess_ns / step_ns, 1.0)
    shown: dict[str, Any] = {
        "measured": Quantity(share, Unit.SHARE),
        "limit": Quantity(limits.min_step_share, Unit.SHARE),
        "confidence": _confidence(n_steps),
        "evidence": (_by_rank(own, layers, n_steps), _by_layer(layers)),
    }
    is_found = (
        share >= limits.min_step_share
        and uneven >= least_uneven(run, limits)
        and other_unevenness(run) <= limits.max_even_share * uneven
    )
    if not is_found:
        return (finding(DETECTOR, Status.CLEAR, **shown),)
    ranks = _at_fault(layers)
    n_layers = layers.height / n_steps
    return (
        finding(
            DETECTOR,
            Status.FOUND,
            title=f"The busiest experts cost {text(excess_ns, Unit.NS)} of each step",
            cause=Cause.EXPERT_IMBALANCE,
            ranks=ranks,
            groups=(worst,),
            steps=averages(run).steps,
            saving=saving(
                min(excess_ns, waiting_ns(run)),
                number((layers["max_ns"] - layers["median_ns"]).sum()) / n_steps,
                step_ns,
                mean_steps(run).height,
                "low end: experts take the mean of their layer, as far as the others are seen to "
                "wait; high end: the longest takes the median of the others; upper bound",
            ),
            why=f"the longest rank of a layer computes {text(uneven, Unit.SHARE)} longer than the "
            f"mean, {text(excess_ns / n_layers, Unit.NS)} in each of {n_layers:.0f} layers a step",
            **shown,
        ),
    )


def _layers(work: pl.DataFrame) -> pl.DataFrame:
    """Each layer of a step with its longest rank, for groups of at least two ranks."""
    return (
        work.sort("expert_ns", "rank", descending=[True, False])
        .group_by("group", "step", "layer", maintain_order=True)
        .agg(
            worst=pl.col("rank").first(),
            max_ns=pl.col("expert_ns").max(),
            mean_ns=pl.col("expert_ns").mean(),
            median_ns=pl.col("expert_ns").slice(1).median(),  # of the others
            n_ranks=pl.len(),
        )
        .filter(pl.col("n_ranks") > 1)
        .with_columns(excess_ns=pl.col("max_ns") - pl.col("mean_ns"))
        .sort("group", "step", "layer")
    )


def _worst(layers: pl.DataFrame) -> str:
    """The group with the greatest excess."""
    totals = layers.group_by("group").agg(pl.col("excess_ns").sum())
    return str(totals.sort("excess_ns", "group", descending=[True, False])["group"][0])


def _at_fault(layers: pl.DataFrame) -> tuple[int, ...]:
    """Ranks that are longest in a quarter of the layers; where all are equal, none is."""
    counts = layers.filter(pl.col("excess_ns") > 0).group_by("worst").agg(n=pl.len())
    return tuple(counts.filter(pl.col("n") >= MIN_WORST_SHARE * layers.height)["worst"].sort())


def _confidence(n_steps: int) -> Confidence:
    level = Level.MEDIUM if n_steps > 1 else Level.LOW
    return Confidence(level, f"mean of {n_steps} step{'s' if n_steps > 1 else ''}")


def _by_rank(work: pl.DataFrame, layers: pl.DataFrame, n_steps: int) -> Evidence:
    uneven = layers.filter(pl.col("excess_ns") > 0)
    longest = uneven.group_by(rank="worst").agg(n=pl.len().cast(pl.Int64))
    rows = (
        work.group_by("rank")
        .agg(expert_ns=pl.col("expert_ns").sum() / n_steps)
        .join(longest, on="rank", how="left", validate="1:1")
        .with_columns(pl.col("n").fill_null(0))
        .sort("expert_ns", "rank", descending=[True, False])
    )
    return Evidence(
        title="Experts by rank",
        columns=(
            Column("rank"),
            Column("experts, a step", Unit.NS),
            Column("longest in so many layers, all steps", Unit.COUNT),
        ),
        rows=tuple(rows.head(N_SHOWN).iter_rows()),
    )


def _by_layer(layers: pl.DataFrame) -> Evidence:
    rows = layers.sort("excess_ns", "step", "layer", descending=[True, False, False])
    return Evidence(
        title="Layers that lose most",
        columns=(
            Column("step"),
            Column("exchanges of the step before it"),
            Column("longest rank"),
            Column("longest", Unit.NS),
            Column("mean", Unit.NS),
        ),
        rows=tuple(
            rows.head(N_SHOWN).select("step", "layer", "worst", "max_ns", "mean_ns").iter_rows()
        ),
    )


DETECTOR = Detector(
    id="expert-imbalance",
    title="Some experts get more tokens",
    clear="Experts take equally long",
    needs=(COLLECTIVES,),
    how="Record the same steps on all ranks, with the exchanges of the experts' tokens.",
    min_ranks=2,
    limits=Limits,
    detect=detect,
    cure=even_or_as_peers(IS_COMPUTE),
)
