"""The devices wait for the next batch.

What it measures:
    Time in which a device is idle while its training thread waits in the data loader, and at which
    steps: every one, every k-th (as many as loader workers are likely), or where an epoch starts.

Formula:
    A gap of a device whose host part (definitions, section 4) is covered most by the loader's
    `__next__` is an input stall, launch latency behind it included, whether or not a call had
    drained the queue before. Measured: stalls / T of the rank with most, over averaged steps.

Threshold:
    Found when the rank that waits most is stalled for at least `max_step_share` of its step.

Evidence:
    Stalls by rank; stalls of the worst rank by step; the calls in which they fell.

What-if saving:
    The stalls of all ranks go. Low: in each step the greatest stall less the waiting of the same
    rank for others; high: the greatest stall.

Recommendation:
    More workers and prefetching where every step or every k-th one stalls; persistent workers where
    epochs begin with a stall.

References:
    https://pytorch.org/docs/stable/data.html, https://github.com/mlfoundations/open_clip/issues/703
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.activity import has_device_events
from tracekit.derive.averages import breakdowns
from tracekit.derive.host_kinds import INPUT_PIPELINE
from tracekit.derive.periods import epoch_starts, period
from tracekit.derive.savings import saving
from tracekit.derive.stalls import by_call, by_rank, removable_ns, stalled, stalls
from tracekit.detectors import Detector, finding, number, skipped
from tracekit.detectors._cures import without_host_work
from tracekit.detectors._stalls import (
    ASSUMES,
    NOTHING,
    at_fault,
    calls_table,
    not_found,
    ranks_table,
    shown_of,
)
from tracekit.findings import (
    Cause,
    Change,
    Column,
    Evidence,
    Finding,
    Range,
    Recommendation,
    Status,
)
from tracekit.units import Unit, limit, text

if TYPE_CHECKING:
    from tracekit.store import Run

MIN_EVERY_SHARE = 0.75
"""One or another step of a run that always waits finds a batch loaded ahead."""
_PERSISTENT = Recommendation(
    "Keep the loader's workers alive between epochs, so that they load ahead from the first step.",
    Change.SETTING,
    ("DataLoader(..., persistent_workers=True)",),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """When waiting for input is worth a look."""

    max_step_share: float = limit(
        0.02, Unit.SHARE, "Less than 2 % of a step comes and goes with the loader's turn."
    )
    min_stall_ns: int = limit(
        200_000, Unit.NS, "Taking a batch that is ready takes 20–150 µs on the host."
    )


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for the run."""
    chosen = (pl.col("class") == INPUT_PIPELINE) & (pl.col("stall_ns") >= limits.min_stall_ns)
    rows = stalled(run, chosen)
    if rows.is_empty():
        return (skipped(DETECTOR, f"{NOTHING}. {DETECTOR.how}"),)
    ranks = by_rank(rows)
    share = number(ranks["share"].max())
    shown = shown_of(run, share, limits.max_step_share)
    if share < limits.max_step_share:
        return not_found(DETECTOR, run, shown, ranks_table("Input stalls", ranks))
    named = at_fault(ranks, limits.max_step_share)
    worst = int(ranks["rank"][0])
    by_step = _by_step(run, worst, chosen)
    when, every, advice = _when(run, worst, by_step)
    step_ns = number(ranks["step_ns"].mean())
    gain = _in_the_long_run(removable_ns(rows), rows.filter(rank=worst), every)
    what = "device" if has_device_events(run) else "training thread"
    subject = f"The {what}s wait" if len(named) > 1 else f"The {what} of rank {worst} waits"
    return (
        finding(
            DETECTOR,
            Status.FOUND,
            title=f"{subject} for input {when}",
            cause=Cause.INPUT_PIPELINE,
            ranks=named,
            steps=tuple(by_step.filter("is_stalled")["host_step"].to_list()),
            saving=saving(gain.low, gain.high, step_ns, ranks.height, ASSUMES),
            recommendation=advice,
            evidence=(
                ranks_table("Input stalls", ranks),
                _steps_table(worst, by_step),
                calls_table("Input stalls", by_call(run, chosen)),
            ),
            why=f"the data loader keeps rank {worst} waiting for "
            f"{text(number(ranks['stall_ns'][0]), Unit.NS)} in the mean step",
            **shown,
        ),
    )


def _by_step(run: Run, rank: int, chosen: pl.Expr) -> pl.DataFrame:
    """Chosen stalls of a rank by the step whose batch they waited for: `host_step`, `stall_ns`.

    All steps but the first, whose wait no device event precedes, to the last; 0 where there was no
    stall. `is_stalled` where it is at least half as long as the longest.
    """
    found = (
        stalls(run, rank)
        .filter(chosen)
        .drop_nulls("host_step")
        .group_by("host_step")
        .agg(pl.col("stall_ns").sum())
        .collect()
    )
    steps = breakdowns(run).filter(rank=rank)["step"].drop_nulls()
    every = pl.concat([steps, found["host_step"]])
    first, last = int(number(steps.min())) + 1, int(number(every.max()))
    longest = pl.col("stall_ns").max()
    return (
        pl.DataFrame({"host_step": range(first, last + 1)}, schema={"host_step": pl.Int64})
        .join(found, on="host_step", how="left", validate="1:1", maintain_order="left")
        .with_columns(pl.col("stall_ns").fill_null(0))
        .with_columns(is_stalled=(2 * pl.col("stall_ns") >= longest) & (longest > 0))
    )


def _when(
    run: Run, rank: int, by_step: pl.DataFrame
) -> tuple[str, int | None, Recommendation | None]:
    """When it stalls, in words; every how many steps, where that is constant; a cure for that."""
    steps = by_step.filter("is_stalled")["host_step"].to_list()
    every = period(by_step["stall_ns"].to_list())
    starts = epoch_starts(run, rank)
    if starts and set(steps) <= set(starts):
        return "where an epoch starts", every, _PERSISTENT
    if every is not None:
        return f"every {every} steps ({every} loader workers are likely)", every, None
    if len(steps) >= MIN_EVERY_SHARE * by_step.height:
        return "in every step", None, None
    return f"in {len(steps)} of {by_step.height} steps", None, None


def _in_the_long_run(gain: Range, rows: pl.DataFrame, every: int | None) -> Range:
    """A gain of the averaged steps, where these hold one stall too many or too few for its period.

    `rows` are those of the rank with the longest stalls.
    """
    in_step = rows.group_by("step").agg(pl.col("stall_ns").max())["stall_ns"]
    n_stalled = int((2 * in_step >= number(in_step.max())).sum())
    if every is None or abs(in_step.len() - every * n_stalled) >= every:
        return gain
    factor = in_step.len() / (every * n_stalled)
    return Range(gain.low * factor, gain.high * factor)


def _steps_table(rank: int, by_step: pl.DataFrame) -> Evidence:
    return Evidence(
        title=f"Input stalls of rank {rank} by step",
        columns=(Column("step"), Column("stalled", Unit.NS)),
        rows=tuple(by_step.select("host_step", "stall_ns").head(32).iter_rows()),
    )


DETECTOR = Detector(
    id="input-stall",
    title="The devices wait for input",
    clear="Batches are ready when they are needed",
    needs=(),
    how="Record with ProfilerActivity.CUDA and ProfilerActivity.CPU.",
    limits=Limits,
    detect=detect,
    cure=without_host_work(INPUT_PIPELINE),
    bounded_by="idle-gpu",
)
