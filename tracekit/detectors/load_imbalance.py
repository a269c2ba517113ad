"""Ranks compute for different times in the same step, and the fast ones wait for the slow.

What it measures:
    Compute time of each rank in every averaged step, and how far the longest exceeds the mean of
    the ranks with the same layers (a stage of a pipeline). Which rank that is may change.

Formula:
    C_r = union of compute kernels of rank r in a step.
    waste = 1 − Σ mean C / Σ max C over averaged steps (LI = max / mean), of the stage that wastes
    most.

Threshold:
    Found when waste is at least `max_waste_share` (`max_host_waste_share` where the training
    thread stands for the device) and the mean of (max C − mean C) is at least
    `min_step_share` of a step. Ranks whose windows hold different work are not compared, and
    neither are stages with each other (`stage-imbalance`).

Evidence:
    Compute by rank; for the longest rank what differs: the same kernels slower, or more of them.

What-if saving:
    High: the longest rank of each step takes the median of the others. Low: it takes the mean, as
    far as ranks are seen to wait for it (their mean exposed waiting; where that cannot be told
    from transfer, a quarter of how much longer than another one they stand in communication).

Recommendation:
    Balance work by cost, not by count, where kernels differ in number or size; look at clocks and
    temperature where the same kernels are slower.

References:
    https://arxiv.org/abs/2505.05713, https://arxiv.org/abs/2402.15627.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.derive.activity import has_device_events
from tracekit.derive.averages import Averages, averages, breakdowns, mean_steps
from tracekit.derive.kernel_totals import differences
from tracekit.derive.savings import saving
from tracekit.derive.stages import stages
from tracekit.detectors import Detector, finding, number, rank_list, skipped
from tracekit.detectors._cures import IS_COMPUTE, even_or_as_peers
from tracekit.detectors._imbalance import cause_of_unevenness, held_apart_ns
from tracekit.detectors._stalls import NOTHING
from tracekit.findings import Column, Confidence, Evidence, Finding, Level, Scope, Status
from tracekit.units import Quantity, Unit, limit, text

if TYPE_CHECKING:
    from tracekit.store import Run

SUBJECT = "compute"
MIN_STEPS_SHARE = 0.6
"""A rank among the longest in fewer steps takes turns with others."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When unequal compute counts."""

    max_waste_share: float = limit(
        0.05, Unit.SHARE, "Equal ranks differ by 1–3 % on healthy real runs."
    )
    max_host_waste_share: float = limit(
        0.1, Unit.SHARE, "Without a device, threads share processors: control runs show 6–8 %."
    )
    min_step_share: float = limit(0.02, Unit.SHARE, "Less than 2 % of a step is not worth a look.")


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for the run's compute time."""
    chosen = averages(run)
    means = (
        mean_steps(run)
        .group_by("rank")
        .agg(pl.col("compute_ns", "exposed_waiting_ns", "dur_ns").mean(), n_devices=pl.len())
        .join(stages(run).select("rank", "stage"), on="rank", validate="1:1")
        .sort("rank")
    )
    why = _why_not(means, is_comparable=chosen.is_comparable)
    if why:
        return (skipped(DETECTOR, why),)
    steps = _by_step(run)
    top = (
        steps.group_by("stage")
        .agg(pl.col("mean_ns", "median_ns", "max_ns").mean())
        .sort(pl.col("max_ns") - pl.col("mean_ns"), "stage", descending=[True, False])
        .row(0, named=True)
    )
    in_step = steps.group_by("step").agg(over_ns=(pl.col("max_ns") - pl.col("median_ns")).max())
    over_median_ns = number(in_step["over_ns"].mean())  # stages may take turns
    own = means.filter(stage=top["stage"])
    kernels = differences(run, chosen.steps)
    most = limits.max_waste_share if has_device_events(run) else limits.max_host_waste_share
    excess_ns, step_ns = top["max_ns"] - top["mean_ns"], number(means["dur_ns"].mean())
    waste_share = excess_ns / top["max_ns"] if top["max_ns"] else 0.0
    shares: dict[str, Any] = {
        "subject": SUBJECT,
        "measured": Quantity(waste_share, Unit.SHARE),
        "limit": Quantity(most, Unit.SHARE),
        "evidence": (_by_rank(own, kernels),),
        "confidence": _confidence(chosen),
    }
    if waste_share < most or excess_ns < limits.min_step_share * step_ns:
        return (finding(DETECTOR, Status.CLEAR, **shares),)
    slow = _longest(steps.filter(stage=top["stage"]))
    return (
        finding(
            DETECTOR,
            Status.FOUND,
            title=_title(slow, excess_ns, top["mean_ns"], n_ranks=own.height),
            cause=cause_of_unevenness(run, slow, kernels),
            ranks=tuple(slow),
            steps=chosen.steps,
            saving=saving(
                min(excess_ns, _waiting_ns(run, own, slow)),
                over_median_ns,
                step_ns,
                int(means["n_devices"].sum()),
                "low end: every rank computes as long as the mean rank, as far as the others are "
                "seen to wait; high end: the longest takes the median of the others; upper bound",
            ),
            scope=Scope(victims=tuple(own.filter(~pl.col("rank").is_in(slow))["rank"])),
            **shares,
        ),
    )


def _waiting_ns(run: Run, own: pl.DataFrame, slow: list[int]) -> float:
    """What the others of a stage wait exposed, in the mean; all of them, where they take turns."""
    is_other = ~pl.col("rank").is_in(slow) if len(slow) < own.height else pl.lit(value=True)
    told_ns = number(own.filter(is_other)["exposed_waiting_ns"].mean())
    return max(told_ns, held_apart_ns(run, own["rank"].to_list()))


def _by_step(run: Run) -> pl.DataFrame:
    """Averaged steps of each stage: `stage`, `step`, mean, max and `longest` compute.

    The median is that of the ranks but the longest one.
    """
    compute = (
        breakdowns(run)
        .filter("is_averaged")
        .with_columns(compute_ns=pl.col("exposed_compute_ns") + pl.col("overlapped_ns"))
        .group_by("rank", "step")
        .agg(pl.col("compute_ns").mean())
        .join(stages(run).select("rank", "stage"), on="rank", validate="m:1")
        .sort("rank")
    )
    mean_ns, max_ns = pl.col("compute_ns").mean(), pl.col("compute_ns").max()
    return (
        compute.group_by("stage", "step")
        .agg(
            mean_ns=mean_ns,
            median_ns=pl.col("compute_ns").sort().head(pl.len() - 1).median().fill_null(max_ns),
            max_ns=max_ns,
            longest=pl.col("rank").filter(pl.col("compute_ns") >= (mean_ns + max_ns) / 2),
        )
        .sort("stage", "step")
    )


def _longest(steps: pl.DataFrame) -> list[int]:
    """Ranks among the longest in most steps, else (they take turns) those so in any; sorted."""
    counts = steps.explode("longest").group_by("longest").agg(n=pl.len())
    mostly = counts.filter(pl.col("n") >= MIN_STEPS_SHARE * steps.height)
    return (mostly if mostly.height else counts)["longest"].sort().to_list()


def _confidence(chosen: Averages) -> Confidence:
    n_steps = len(chosen.steps)
    level = Level.MEDIUM if n_steps > 1 else Level.LOW
    return Confidence(level, f"mean of {n_steps} steps: {chosen.why}")


def _why_not(means: pl.DataFrame, *, is_comparable: bool) -> str:
    if means.is_empty():
        return f"{NOTHING}. {DETECTOR.how}"
    if not is_comparable:
        return (
            "the windows of the ranks may hold different work. Mark steps (prof.step() of "
            "torch.profiler writes ProfilerStep#N) and record the same steps on all ranks."
        )
    if means["stage"].is_unique().all():
        return "every rank is a stage of a pipeline of its own: stage-imbalance compares them."
    if number(means["compute_ns"].max()) <= 0:
        return "no compute kernels in the averaged steps. Record with CUDA activity on."
    return ""


def _title(slow: list[int], excess_ns: float, mean_ns: float, *, n_ranks: int) -> str:
    longer = f"{text(excess_ns / mean_ns, Unit.SHARE)} longer than the mean rank"
    if len(slow) == n_ranks:
        return f"In each step another rank computes {longer}"
    who = f"Rank {slow[0]} computes" if len(slow) == 1 else f"Ranks {rank_list(slow)} compute"
    return f"{who} {longer}"


def _by_rank(means: pl.DataFrame, kernels: pl.DataFrame) -> Evidence:
    table = (
        means.join(kernels, on="rank", how="left", validate="1:1")
        .select("rank", "compute_ns", "slower_ns", "more_ns", "kind", "exposed_waiting_ns")
        .sort("compute_ns", "rank", descending=[True, False])
        .head(16)
    )
    return Evidence(
        title="Compute of the mean step",
        columns=(
            Column("rank"),
            Column("compute", Unit.NS),
            Column("same kernels slower than the median rank", Unit.NS),
            Column("more or bigger kernels than the median rank", Unit.NS),
            Column("kind that differs most"),
            Column("own exposed waiting", Unit.NS),
        ),
        rows=tuple(table.iter_rows()),
    )


DETECTOR = Detector(
    id="load-imbalance",
    title="Ranks compute for different times",
    clear="Ranks compute equally long",
    needs=(),
    how="Record the same steps on all ranks.",
    min_ranks=2,
    limits=Limits,
    detect=detect,
    cure=even_or_as_peers(IS_COMPUTE),
)
