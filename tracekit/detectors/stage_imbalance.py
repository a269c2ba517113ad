"""One stage of a pipeline computes longer than the others, and sets the pace of all.

What it measures:
    Compute of each stage in the mean step. Each micro-batch passes all stages, so that the longest
    stage is the rate of the pipeline, and the others wait in their receives.

Formula:
    C_s = median over pipelines of the compute of stage s (union of compute kernels, mean step); of
    two pipelines the lower one: a stage with one slow rank is no long stage.
    waste = 1 − mean C / max C; excess = max C − mean C. Of pipeline operations C is that of the
    stage's median worker.

Threshold:
    Found when waste is at least `max_waste_share` (`max_host_waste_share` where the training
    thread stands for the device) and excess at least `min_step_share` of a step.
    Skipped where ranks exchange no messages: there is no pipeline.

Evidence:
    Compute by stage, and how much of what it has more is more kernels, how much slower ones.

What-if saving:
    Low: layers are moved so that all stages take the mean. High: the longest stage takes what the
    median of the others does.

Recommendation:
    Move layers away from the longest stage; give first and last ones fewer for their embedding and
    head. Where its kernels are slower, not more, look at its devices.

References:
    https://arxiv.org/abs/2505.05713 (5.2: the last stage with its loss layer).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.derive.activity import has_device_events
from tracekit.derive.averages import averages, mean_steps
from tracekit.derive.causes import cause_of_slowness
from tracekit.derive.kernel_totals import differences
from tracekit.derive.savings import saving
from tracekit.derive.stages import stages
from tracekit.derive.work_totals import class_of_stage
from tracekit.detectors import Detector, finding, number, skipped
from tracekit.detectors._cures import even_stages
from tracekit.detectors._imbalance import CAUSE_OF_CLASS
from tracekit.detectors._operations import long_stage
from tracekit.findings import Cause, Column, Confidence, Evidence, Finding, Level, Scope, Status
from tracekit.schema import OPS
from tracekit.units import Quantity, Unit, limit, text

if TYPE_CHECKING:
    from tracekit.store import Run

_NO_PIPELINE = "ranks exchange no messages that name their peers: no pipeline seen. "
_HOW = "Record the same steps on all ranks, with CUDA activity on."


@dataclass(frozen=True, slots=True)
class Limits:
    """When unequal stages count."""

    max_waste_share: float = limit(
        0.05, Unit.SHARE, "Stages of whole layers cannot be cut more evenly than some per cent."
    )
    max_host_waste_share: float = limit(
        0.2, Unit.SHARE, "Without a device, stages share processors, and the last has the loss."
    )
    min_step_share: float = limit(0.02, Unit.SHARE, "Less than 2 % of a step is not worth a look.")


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for the longest stage."""
    if run.n_rows(OPS.name):
        least = limits.min_step_share
        return (long_stage(DETECTOR, run, limits.max_waste_share, least),)
    if number(stages(run)["n_stages"].max()) < 2:
        return (skipped(DETECTOR, f"{_NO_PIPELINE}{DETECTOR.how}"),)
    if not averages(run).is_comparable:
        why = "the windows of the ranks may hold different work. Mark steps with prof.step()."
        return (skipped(DETECTOR, why),)
    compute = _by_stage(run)
    if compute.height < 2 or number(compute["compute_ns"].max()) <= 0:
        return (skipped(DETECTOR, f"no compute of all stages in the averaged steps. {_HOW}"),)
    step_ns = number(mean_steps(run)["dur_ns"].mean())
    top = compute.sort("compute_ns", "stage", descending=[True, False]).row(0, named=True)
    others = compute.filter(pl.col("stage") != top["stage"])
    mean_ns, max_ns = number(compute["compute_ns"].mean()), float(top["compute_ns"])
    waste_share = 1 - mean_ns / max_ns
    most = limits.max_waste_share if has_device_events(run) else limits.max_host_waste_share
    shown: dict[str, Any] = {
        "measured": Quantity(waste_share, Unit.SHARE),
        "limit": Quantity(most, Unit.SHARE),
        "confidence": _confidence(len(averages(run).steps)),
        "evidence": (_table(compute),),
    }
    is_small = max_ns - mean_ns < limits.min_step_share * step_ns
    if waste_share < most or is_small:
        return (finding(DETECTOR, Status.CLEAR, **shown),)
    is_slower = float(top["slower_ns"]) > float(top["more_ns"])
    n_stages = compute.height
    own_ns = max_ns - number(others["compute_ns"].median())
    work = class_of_stage(run, top["ranks"]) if is_slower else None
    cause = cause_of_slowness(run) if is_slower else Cause.STAGE_IMBALANCE
    what = "its kernels run slower" if is_slower else "it has more or bigger kernels"
    if work is not None:
        cause, what = CAUSE_OF_CLASS[work], f"its {work} takes longer"
    return (
        finding(
            DETECTOR,
            Status.FOUND,
            subject=f"stage {top['stage']}",
            title=f"Stage {top['stage']} of {n_stages} computes "
            f"{text(max_ns / mean_ns - 1, Unit.SHARE)} longer than the mean stage",
            cause=cause,
            ranks=tuple(top["ranks"]),
            steps=averages(run).steps,
            saving=saving(
                max_ns - mean_ns,
                own_ns,
                step_ns,
                mean_steps(run).height,
                "low end: all stages take the mean; high end: the longest one takes what the "
                "median of the others does; upper bound",
            ),
            scope=Scope(victims=tuple(others["ranks"].explode().sort())),
            why=f"{what}, {text(own_ns, Unit.NS)} a step more than the median of the other stages",
            **shown,
        ),
    )


def _by_stage(run: Run) -> pl.DataFrame:
    """`stage`, `ranks`, `compute_ns`, `slower_ns`, `more_ns`: medians over its ranks; by stage."""
    compute = mean_steps(run).group_by("rank").agg(pl.col("compute_ns").mean())
    kernels = differences(run, averages(run).steps).select("rank", "slower_ns", "more_ns")
    return (
        stages(run)
        .filter(pl.col("n_stages") == pl.col("n_stages").max())
        .join(compute, on="rank", validate="1:1")
        .join(kernels, on="rank", how="left", validate="1:1")
        .with_columns(pl.col("slower_ns", "more_ns").fill_null(0.0))
        .group_by("stage")
        .agg(
            pl.col("rank").sort().alias("ranks"),
            pl.col("compute_ns", "slower_ns", "more_ns").quantile(0.5, "lower"),
        )
        .sort("stage")
    )


def _confidence(n_steps: int) -> Confidence:
    level = Level.MEDIUM if n_steps > 1 else Level.LOW
    return Confidence(
        level, f"mean of {n_steps} steps; stages are told by their ranks' messages, in their order"
    )


def _table(compute: pl.DataFrame) -> Evidence:
    rows = compute.select(
        "stage",
        pl.col("ranks").list.head(8).cast(pl.List(pl.String)).list.join(", "),
        "compute_ns",
        "slower_ns",
        "more_ns",
    )
    return Evidence(
        title="Compute by stage, mean step",
        columns=(
            Column("stage"),
            Column("ranks"),
            Column("compute, median of its ranks", Unit.NS),
            Column("same kernels slower than the median rank", Unit.NS),
            Column("more or bigger kernels than the median rank", Unit.NS),
        ),
        rows=tuple(rows.iter_rows()),
    )


DETECTOR = Detector(
    id="stage-imbalance",
    title="One stage of the pipeline is longer",
    clear="The stages of the pipeline are equally long",
    needs=(),
    how="Record the same steps on all ranks, with a torch that names senders and receivers.",
    min_ranks=2,
    limits=Limits,
    detect=detect,
    cure=even_stages,
)
