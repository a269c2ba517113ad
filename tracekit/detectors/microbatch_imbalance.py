"""Micro-batches of a pipeline take unequally long, and every stage waits for the longest.

What it measures:
    Compute of each micro-batch (forward and backward) on each stage. In a pipeline a long one
    delays all stages behind it, one after the other, and short ones cannot fill the gap.

Formula:
    M_j = median over the ranks of a stage of forward + backward compute of micro-batch j in a step.
    excess = (p − 1) · (max_j M_j − mean_j M_j) with p stages, of the longest stage: what a pipeline
    of p stages waits more for than for equal micro-batches. Measured: mean over averaged steps / T.
    r = correlation of forward and backward time over micro-batches: batches differ where it is at
    least `min_correlation`, else devices or hosts do.

Threshold:
    Found when measured is at least `min_step_share` and r at least `min_correlation`. Skipped
    without a pipeline, or where turns cannot be told apart.

Evidence:
    Micro-batches of the longest stage; r.

What-if saving:
    Low: none is longer than the mean in half of the p − 1 places: a schedule that runs one forward
    and one backward pass by turns hides the rest in its bubble. High: in all of them.

Recommendation:
    Sort samples into micro-batches of equal cost, by measured time or squared length.

References:
    https://arxiv.org/abs/2505.05713 (5.3: forward and backward of a micro-batch correlate by 0.9
    where sequence lengths differ).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.derive.averages import averaged, averages, mean_steps
from tracekit.derive.micro_batches import turns
from tracekit.derive.savings import saving
from tracekit.derive.stages import stages
from tracekit.detectors import Detector, finding, number, skipped
from tracekit.detectors._cures import even_micro_batches
from tracekit.findings import Cause, Column, Confidence, Evidence, Finding, Level, Status
from tracekit.units import Quantity, Unit, limit, text

if TYPE_CHECKING:
    from tracekit.store import Run

N_SHOWN = 32
_NO_PIPELINE = "ranks exchange no messages that name their peers: no pipeline seen. "
_UNTOLD = (
    "forward and backward turns of the micro-batches cannot be told apart. Record whole steps with "
    "ProfilerActivity.CPU and CUDA, so that launches are in the traces."
)


@dataclass(frozen=True, slots=True)
class Limits:
    """When unequal micro-batches count."""

    min_step_share: float = limit(0.02, Unit.SHARE, "Less than 2 % of a step is not worth a look.")
    min_correlation: float = limit(
        0.9, Unit.RATIO, "Length governs both passes of a micro-batch; noise does not."
    )


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for the pipelines of the run."""
    places = stages(run)
    n_stages = int(number(places["n_stages"].max()))
    if n_stages < 2:
        return (skipped(DETECTOR, f"{_NO_PIPELINE}{DETECTOR.how}"),)
    batches = _batches(run)
    if batches.is_empty():
        return (skipped(DETECTOR, _UNTOLD),)
    step_ns = number(mean_steps(run)["dur_ns"].mean())
    top = _longest(batches)
    own = batches.filter(stage=top["stage"])
    over_ns = float(top["over_ns"])
    excess_ns = (n_stages - 1) * over_ns
    correlation = own.select(pl.corr("forward_ns", "backward_ns")).item()
    r = float(correlation) if correlation is not None and correlation == correlation else 0.0  # noqa: PLR0124 - NaN
    share = min(excess_ns / step_ns, 1.0)
    n_steps = len(averages(run).steps)
    shown: dict[str, Any] = {
        "measured": Quantity(share, Unit.SHARE),
        "limit": Quantity(limits.min_step_share, Unit.SHARE),
        "confidence": Confidence(
            Level.MEDIUM if n_steps > 1 else Level.LOW,
            f"forward and backward of a micro-batch correlate by {r:.2f} over {n_steps} steps",
        ),
        "evidence": (_table(own),),
    }
    if share < limits.min_step_share or r < limits.min_correlation:
        return (finding(DETECTOR, Status.CLEAR, **shown),)
    return (
        finding(
            DETECTOR,
            Status.FOUND,
            title=f"Uneven micro-batches cost up to {text(excess_ns, Unit.NS)} of each step",
            cause=Cause.MICROBATCH_IMBALANCE,
            ranks=tuple(places.filter(stage=top["stage"])["rank"].sort()),
            steps=averages(run).steps,
            saving=saving(
                excess_ns / 2,
                excess_ns,
                step_ns,
                mean_steps(run).height,
                "micro-batches take the mean; high end: each stage behind the first waits for the "
                "longest; low end: half of them, as 1F1B may hide the rest; upper bound",
            ),
            why=f"the longest micro-batch of a step takes {text(over_ns, Unit.NS)} more than the "
            "mean, in both passes",
            **shown,
        ),
    )


def _batches(run: Run) -> pl.DataFrame:
    """`stage`, `step`, `micro_batch`, `forward_ns`, `backward_ns`: medians over its ranks.

    Only steps in which all ranks of a stage have as many forward as backward turns.
    """
    is_forward, compute_ns = pl.col("is_forward"), pl.col("compute_ns")
    n_turns = ("rank", "step")
    found = (
        averaged(run, turns)
        .filter(
            is_forward.sum().over(n_turns) == (~is_forward).sum().over(n_turns),
            is_forward.sum().over(n_turns) > 1,
        )
        .join(stages(run).select("rank", "stage"), on="rank", validate="m:1")
    )
    return (
        found.group_by("stage", "step", "micro_batch")
        .agg(
            forward_ns=compute_ns.filter(is_forward).median(),
            backward_ns=compute_ns.filter(~is_forward).median(),
        )
        .sort("stage", "step", "micro_batch")
    )


def _longest(batches: pl.DataFrame) -> dict[str, Any]:
    """The stage whose micro-batches differ most: `stage`, `over_ns` (max − mean, mean of steps)."""
    both_ns = pl.col("forward_ns") + pl.col("backward_ns")
    return (
        batches.group_by("stage", "step")
        .agg(over_ns=both_ns.max() - both_ns.mean())
        .group_by("stage")
        .agg(pl.col("over_ns").mean())
        .sort("over_ns", "stage", descending=[True, False])
        .row(0, named=True)
    )


def _table(batches: pl.DataFrame) -> Evidence:
    rows = batches.sort(pl.col("forward_ns") + pl.col("backward_ns"), descending=True)
    return Evidence(
        title="Micro-batches of the stage where they differ most, the longest first",
        columns=(
            Column("step"),
            Column("micro-batch"),
            Column("forward", Unit.NS),
            Column("backward", Unit.NS),
        ),
        rows=tuple(
            rows.head(N_SHOWN)
            .select("step", "micro_batch", "forward_ns", "backward_ns")
            .iter_rows()
        ),
    )


DETECTOR = Detector(
    id="microbatch-imbalance",
    title="Micro-batches take unequally long",
    clear="Micro-batches take equally long",
    needs=(),
    how="Record the same steps on all ranks, with a torch that names senders and receivers.",
    min_ranks=2,
    limits=Limits,
    detect=detect,
    cure=even_micro_batches,
)
