"""Ranks compute for different times in the same step, and the fast ones wait for the slow.

What it measures:
    Compute time of each rank in the averaged steps, and how far the longest exceeds the mean.

Formula:
    C_r = mean over averaged steps of the union of compute kernels of rank r.
    waste = 1 − mean C / max C (LI = max / mean).

Threshold:
    Found when waste is at least `max_waste_share` and (max C − mean C) is at least `min_step_share`
    of a step. Ranks whose windows hold different work are not compared.

Evidence:
    Compute by rank; for the longest rank what differs: the same kernels slower, or more of them.

What-if saving:
    High: every rank takes the mean. Low: the same, as far as ranks are seen to wait for it
    (their mean exposed waiting).

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

from tracekit.derive.averages import Averages, averages, mean_steps
from tracekit.derive.causes import cause_of_slowness
from tracekit.derive.kernel_totals import differences
from tracekit.derive.savings import saving
from tracekit.detectors import Detector, finding, number, rank_list, skipped
from tracekit.findings import (
    Cause,
    Column,
    Confidence,
    Evidence,
    Finding,
    Level,
    Saving,
    Scope,
    Status,
)
from tracekit.units import Quantity, Unit, limit, text

if TYPE_CHECKING:
    from tracekit.store import Run

SUBJECT = "compute"


@dataclass(frozen=True, slots=True)
class Limits:
    """When unequal compute counts."""

    max_waste_share: float = limit(
        0.05, Unit.SHARE, "Equal ranks differ by 1–3 % on healthy real runs."
    )
    min_step_share: float = limit(0.02, Unit.SHARE, "Less than 2 % of a step is not worth a look.")


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for the run's compute time."""
    chosen = averages(run)
    means = (
        mean_steps(run)
        .group_by("rank")
        .agg(pl.col("compute_ns", "exposed_waiting_ns", "dur_ns").mean(), n_devices=pl.len())
        .sort("rank")
    )
    why = _why_not(means, is_comparable=chosen.is_comparable)
    if why:
        return (skipped(DETECTOR, why),)
    mean_ns, max_ns = number(means["compute_ns"].mean()), number(means["compute_ns"].max())
    kernels = differences(run, chosen.steps)
    waste_share = 1 - mean_ns / max_ns
    shares: dict[str, Any] = {
        "subject": SUBJECT,
        "measured": Quantity(waste_share, Unit.SHARE),
        "limit": Quantity(limits.max_waste_share, Unit.SHARE),
        "evidence": (_by_rank(means, kernels),),
        "confidence": _confidence(chosen),
    }
    is_small = max_ns - mean_ns < limits.min_step_share * number(means["dur_ns"].mean())
    if waste_share < limits.max_waste_share or is_small:
        return (finding(DETECTOR, Status.CLEAR, **shares),)
    is_slow = pl.col("compute_ns") >= (mean_ns + max_ns) / 2
    slow = means.filter(is_slow)["rank"].to_list()
    return (
        finding(
            DETECTOR,
            Status.FOUND,
            title=_title(slow, max_ns - mean_ns, mean_ns),
            cause=_cause(run, kernels, slow),
            ranks=tuple(slow),
            steps=chosen.steps,
            saving=_saving(means, is_slow),
            scope=Scope(victims=tuple(means.filter(~is_slow)["rank"])),
            **shares,
        ),
    )


def _saving(means: pl.DataFrame, is_slow: pl.Expr) -> Saving:
    """Every rank takes the mean; for sure only as far as the others are seen to wait."""
    excess_ns = number(means["compute_ns"].max()) - number(means["compute_ns"].mean())
    waiting_ns = number(means.filter(~is_slow)["exposed_waiting_ns"].mean())
    return saving(
        min(excess_ns, waiting_ns),
        excess_ns,
        number(means["dur_ns"].mean()),
        int(means["n_devices"].sum()),
        "every rank computes as long as the mean rank; low end: as far as the others are seen to "
        "wait; upper bound",
    )


def _confidence(chosen: Averages) -> Confidence:
    n_steps = len(chosen.steps)
    level = Level.MEDIUM if n_steps > 1 else Level.LOW
    return Confidence(level, f"mean of {n_steps} steps: {chosen.why}")


def _why_not(means: pl.DataFrame, *, is_comparable: bool) -> str:
    if not is_comparable:
        return (
            "the windows of the ranks may hold different work. Mark steps (prof.step() of "
            "torch.profiler writes ProfilerStep#N) and record the same steps on all ranks."
        )
    if number(means["compute_ns"].max()) <= 0:
        return "no compute kernels in the averaged steps. Record with CUDA activity on."
    return ""


def _title(slow: list[int], excess_ns: float, mean_ns: float) -> str:
    who = f"Rank {slow[0]} computes" if len(slow) == 1 else f"Ranks {rank_list(slow)} compute"
    return f"{who} {text(excess_ns / mean_ns, Unit.SHARE)} longer than the mean rank"


def _cause(run: Run, kernels: pl.DataFrame, slow: list[int]) -> Cause:
    """More or bigger kernels than the median rank's, or the same ones slower."""
    own = kernels.filter(pl.col("rank").is_in(slow))
    more, slower = number(own["more_ns"].sum()), number(own["slower_ns"].sum())
    return Cause.DATA_IMBALANCE if more >= slower else cause_of_slowness(run)


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
)
