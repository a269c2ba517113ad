"""The devices have nothing to run: idle time and what the host did meanwhile.

What it measures:
    Time in which no kernel, copy or memset runs on a device, by what the launching thread did.

Formula:
    idle = T − |C ∪ N ∪ M|, mean over devices and averaged steps. Each gap is cut at the launch call
    of the event that ends it: before its end the host's part, with one cause; after it launch
    latency. Causes are exclusive and add up to idle.

Threshold:
    Found when idle is at least `max_step_share` of a step.

Evidence:
    Idle time by cause, with the host call in which the longest part fell; idle time by rank.

What-if saving:
    Of the largest class of host work: in each step between its greatest stall less the waiting of
    the same rank for others, and its greatest stall; the low end leaves idle time at the limit.
    None where a finding of its own names that class (input-stall, host-sync, launch-bound).

Recommendation:
    Follows from the cause: input pipeline, synchronising calls, allocator, launch overhead.

References:
    https://pytorch.org/tutorials/recipes/recipes/tuning_guide.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.derive.activity import HOST_DEVICE, has_device_events
from tracekit.derive.averages import averages, mean_steps
from tracekit.derive.causes import cause_of
from tracekit.derive.idle_totals import idle_by_cause
from tracekit.derive.profiler_cost import costly_options
from tracekit.derive.savings import saving
from tracekit.derive.stalls import removable_ns, stalled
from tracekit.detectors import Detector, finding, number, skipped
from tracekit.detectors._cures import instant_host
from tracekit.detectors._stalls import confidence
from tracekit.findings import Cause, Column, Evidence, Finding, Range, Status
from tracekit.units import Quantity, Unit, limit, text

if TYPE_CHECKING:
    from tracekit.store import Run


@dataclass(frozen=True, slots=True)
class Limits:
    """When idle time is worth a look."""

    max_step_share: float = limit(
        0.1, Unit.SHARE, "Well-fed devices of real runs are idle for 2–8 % of a step."
    )


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for the run."""
    chosen = averages(run)
    means = mean_steps(run)
    if means.is_empty():
        why = "no device event and no host operator. Record with ProfilerActivity.CUDA and .CPU."
        return (skipped(DETECTOR, why),)
    step_ns, idle_ns = number(means["dur_ns"].mean()), number(means["idle_ns"].mean())
    causes = _by_cause(run, chosen.steps, means.height)
    shares: dict[str, Any] = {
        "measured": Quantity(idle_ns / step_ns, Unit.SHARE),
        "limit": Quantity(limits.max_step_share, Unit.SHARE),
        "evidence": (_causes(causes, step_ns), _by_rank(means)),
        "confidence": confidence(run),
    }
    if idle_ns / step_ns < limits.max_step_share:
        return (finding(DETECTOR, Status.CLEAR, **shares),)
    cause, gain = _largest(run, causes)
    low_ns = min(idle_ns - limits.max_step_share * step_ns, gain.low)
    is_sure = cause is not Cause.UNKNOWN and not costly_options(run)
    worst = means.filter(pl.col("idle_ns") >= limits.max_step_share * pl.col("dur_ns"))
    return (
        finding(
            DETECTOR,
            Status.FOUND,
            title=_title(run, idle_ns / step_ns),
            cause=cause,
            ranks=tuple(sorted(worst["rank"].unique().to_list())),
            steps=chosen.steps,
            saving=saving(
                low_ns if is_sure else 0.0,
                gain.high,
                step_ns,
                means.height,
                "the largest cause vanishes and nothing else takes its place; low end: idle comes "
                f"down to {text(limits.max_step_share, Unit.SHARE)}; upper bound",
            ),
            **shares,
        ),
    )


def _title(run: Run, share: float) -> str:
    what = "The devices are" if has_device_events(run) else "The training thread is"
    return f"{what} idle for {text(share, Unit.SHARE)} of the step"


def _largest(run: Run, causes: pl.DataFrame) -> tuple[Cause, Range]:
    """The largest class on the host and what goes with it; unknown where the trace cannot tell."""
    if causes.is_empty():
        return Cause.UNKNOWN, Range(0.0, 0.0)
    largest, cause = str(causes["cause"][0]), cause_of(str(causes["cause"][0]))
    if cause is Cause.UNKNOWN:
        return cause, Range(0.0, float(causes["idle_ns"][0]))
    return cause, removable_ns(stalled(run, pl.col("class") == largest))


def _by_cause(run: Run, steps: tuple[int, ...], n_devices: int) -> pl.DataFrame:
    """Idle time a step and device by cause: `cause`, `idle_ns`, `detail`; longest first."""
    return (
        idle_by_cause(run, by_host_class=True)
        .sort("dur_ns", descending=True)
        .group_by("cause", maintain_order=True)
        .agg(
            idle_ns=pl.col("dur_ns").sum() / (max(len(steps), 1) * n_devices),
            detail=pl.col("detail").first(),
        )
        .sort("idle_ns", "cause", descending=[True, False])
    )


def _causes(causes: pl.DataFrame, step_ns: float) -> Evidence:
    table = causes.select(
        "cause", "idle_ns", (pl.col("idle_ns") / step_ns).alias("share"), "detail"
    ).rows()
    return Evidence(
        title="Idle time by cause, mean device and step",
        columns=(
            Column("cause"),
            Column("idle", Unit.NS),
            Column("share of the step", Unit.SHARE),
            Column("longest part fell in or after"),
        ),
        rows=tuple((c, i, s, str(d)[:120]) for c, i, s, d in table),
    )


def _by_rank(means: pl.DataFrame) -> Evidence:
    table = (
        means.select(
            "rank",
            pl.col("device").replace(HOST_DEVICE, None),
            "dur_ns",
            "idle_ns",
            share=pl.col("idle_ns") / pl.col("dur_ns"),
        )
        .sort("idle_ns", "rank", descending=[True, False])
        .head(16)
    )
    return Evidence(
        title="Idle time by rank, mean step",
        columns=(
            Column("rank"),
            Column("device"),
            Column("step", Unit.NS),
            Column("idle", Unit.NS),
            Column("share of the step", Unit.SHARE),
        ),
        rows=tuple(table.iter_rows()),
    )


DETECTOR = Detector(
    id="idle-gpu",
    title="The devices have nothing to run",
    clear="The devices are kept busy",
    needs=(),
    how="Record with ProfilerActivity.CUDA and ProfilerActivity.CPU.",
    limits=Limits,
    detect=detect,
    cure=instant_host,
    is_bound=True,
)
