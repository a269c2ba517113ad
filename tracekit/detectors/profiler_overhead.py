"""The profiler itself slows the host, and figures about the host are upper bounds.

What it measures:
    How much of a step the recording itself may have cost: time for each operator recorded, and the
    profiler's own work where it recorded that.

Formula:
    cost = operators × 3.8 µs (8 µs with shapes or memory, 12.6 µs with stacks or modules) + time
    under the profiler's own overhead events. Measured: the cost of what was recorded in gaps of the
    device that the host owes / T, of the rank with most: what lies under busy devices slowed
    nothing down. Where the training thread stands for the device, the cost of a step / T.

Threshold:
    Found when that is at least `max_step_share` of a step. It is a note about the measurement,
    never a warning about the job.

Evidence:
    Operators a step, cost of one, cost a step, and of that in gaps of the device, by rank.

What-if saving:
    None: the job does not run under the profiler.

Recommendation:
    Which options to switch off; compare with the step time of the same job without profiler.

References:
    https://pytorch.org/docs/stable/profiler.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.derive.activity import has_device_events
from tracekit.derive.averages import averaged
from tracekit.derive.host_work import host_work
from tracekit.derive.profiler_cost import costly_options, operator_ns
from tracekit.derive.stalls import stalled
from tracekit.detectors import Detector, finding, number, skipped
from tracekit.detectors._stalls import N_SHOWN, NOTHING
from tracekit.findings import (
    Cause,
    Change,
    Column,
    Confidence,
    Evidence,
    Finding,
    Level,
    Recommendation,
    Status,
)
from tracekit.schema import CPU_OPS
from tracekit.units import Quantity, Unit, limit, text

if TYPE_CHECKING:
    from tracekit.store import Run


@dataclass(frozen=True, slots=True)
class Limits:
    """When the profiler's own cost matters."""

    max_step_share: float = limit(
        0.05, Unit.SHARE, "Below that no figure of the host changes its meaning."
    )


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for the run."""
    ranks = _by_rank(run)
    if ranks.is_empty():
        return (skipped(DETECTOR, f"{NOTHING}. {DETECTOR.how}"),)
    share = number(ranks["share"][0])
    shown: dict[str, Any] = {
        "measured": Quantity(share, Unit.SHARE),
        "limit": Quantity(limits.max_step_share, Unit.SHARE),
        "confidence": Confidence(Level.MEDIUM, "from the usual cost of recording an operator"),
        "evidence": (_table(ranks),),
    }
    if share < limits.max_step_share:
        return (finding(DETECTOR, Status.CLEAR, **shown),)
    options = costly_options(run)
    return (
        finding(
            DETECTOR,
            Status.FOUND,
            title=f"The profiler may cost up to {text(share, Unit.SHARE)} of a step",
            cause=Cause.PROFILER_OVERHEAD,
            ranks=tuple(sorted(ranks.filter(share=share)["rank"].to_list())),
            recommendation=_advice(run, options),
            why=f"recording {number(ranks['n_operators'][0]):,.0f} operators a step costs the host "
            f"{text(number(ranks['cost_ns'][0]), Unit.NS)}",
            **shown,
        ),
    )


def _by_rank(run: Run) -> pl.DataFrame:
    """Mean step of each rank, the greatest share first.

    Columns: `rank`, `n_operators`, `operator_ns`, `cost_ns`, `exposed_ns`, `share`.
    """
    exposed = (
        stalled(run, pl.lit(value=True))
        .group_by("rank", "step")
        .agg(pl.col("profiler_ns").max())
        .group_by("rank")
        .agg(exposed_ns=pl.col("profiler_ns").mean())
    )
    costs = pl.DataFrame(
        {"rank": list(run.ranks), "operator_ns": [operator_ns(run, rank) for rank in run.ranks]},
        schema={"rank": pl.Int64, "operator_ns": pl.Float64},
    )
    means = (
        averaged(run, host_work)
        .group_by("rank")
        .agg(
            pl.col("n_operators").mean(),
            cost_ns=pl.col("profiler_ns").mean(),
            step_ns=pl.col("dur_ns").mean(),
        )
        .join(costs, on="rank", validate="1:1")
        .join(exposed, on="rank", validate="1:1")
    )
    if not has_device_events(run):
        means = means.with_columns(exposed_ns="cost_ns")
    return (
        means.with_columns(share=pl.col("exposed_ns") / pl.col("step_ns"))
        .select("rank", "n_operators", "operator_ns", "cost_ns", "exposed_ns", "share")
        .sort("share", "rank", descending=[True, False])
    )


def _advice(run: Run, options: tuple[str, ...]) -> Recommendation:
    off = ", ".join(f"{name}=False" for name in options)
    is_hooked = any(capture.facts is not None for capture in run.manifest.captures)
    if not off:
        few = "schedule=torch.profiler.schedule(wait=50, warmup=2, active=3, repeat=1)"
        return Recommendation(
            "Compare with the step time of the job without the profiler, and record few steps.",
            Change.SETTING,
            ("tracekit.collect(run_dir, steps=3, wait=50)" if is_hooked else few,),
        )
    return Recommendation(
        "Record again with these options off; they tell what called a kernel, and cost most.",
        Change.SETTING,
        (f"torch.profiler.profile(..., {off})",),
    )


def _table(ranks: pl.DataFrame) -> Evidence:
    return Evidence(
        title="Cost of recording, mean step",
        columns=(
            Column("rank"),
            Column("operators", Unit.COUNT),
            Column("cost of one", Unit.NS),
            Column("cost", Unit.NS),
            Column("in gaps of the device", Unit.NS),
            Column("share of the step", Unit.SHARE),
        ),
        rows=tuple(ranks.head(N_SHOWN).iter_rows()),
    )


DETECTOR = Detector(
    id="profiler-overhead",
    title="The profiler slows the host",
    clear="Recording cost the host little",
    needs=(CPU_OPS,),
    how="Record with ProfilerActivity.CPU.",
    limits=Limits,
    detect=detect,
)
