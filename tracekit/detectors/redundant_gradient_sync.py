"""Gradients are reduced in every micro-batch, where once a step would do.

What it measures:
    Reductions of data parallel groups in the backward turns of a step's micro-batches.

Formula:
    A reduction is repeated where the last micro-batch of its step reduces the same bytes, to a
    hundredth. measured = micro-batches of a step in which the same gradients are reduced, mean.

Threshold:
    Found when measured is at least `min_times`. Skipped where no step has several micro-batches.

Evidence:
    Repeated reductions by group and operation: calls and bytes a step, and what of their transfer
    nothing hides.

What-if saving:
    Low: exposed transfer of the repeated calls, which a replay gives in which they take no time.
    High: all of their transfer.

Recommendation:
    Accumulate without synchronising, and reduce in the last micro-batch alone. Sharded gradients
    then take the memory of whole ones between micro-batches.

References:
    https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.averages import averaged, averages, mean_steps
from tracekit.derive.call_exposure import call_exposure
from tracekit.derive.gradient_sync import repeated_reductions
from tracekit.derive.micro_batches import turns
from tracekit.derive.savings import saving
from tracekit.detectors import Detector, finding, number, skipped
from tracekit.detectors._cures import without_repeated_reductions
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
from tracekit.schema import COLLECTIVES
from tracekit.units import Quantity, Unit, limit, text

if TYPE_CHECKING:
    from tracekit.store import Run

MAX_ROWS = 16
ADVICE = Recommendation(
    "Reduce gradients in the last micro-batch of a step alone. Where gradients are sharded, whole "
    "ones then stay in memory between micro-batches.",
    Change.CODE,
    (
        "with model.no_sync(): loss.backward()  # DistributedDataParallel, all but the last",
        "model.set_requires_gradient_sync(is_last_micro_batch)  # fully_shard",
    ),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """How often the same gradients must be reduced."""

    min_times: float = limit(
        2.0, Unit.RATIO, "Once a step is what the result needs; twice is one time too many."
    )


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for the run."""
    means = mean_steps(run)
    most = max((_n_turns(run, rank) for rank in run.ranks), default=0)
    if means.is_empty() or most < 2:
        return (skipped(DETECTOR, f"no step has several micro-batches. {DETECTOR.how}"),)
    rows = repeated_reductions(run)
    times = number(rows["n_micro_batches"].mean()) if rows.height else 1.0
    shared = Quantity(times, Unit.RATIO), Quantity(limits.min_times, Unit.RATIO)
    if times < limits.min_times:
        return (finding(DETECTOR, Status.CLEAR, measured=shared[0], limit=shared[1]),)
    table = _by_group(run, rows)
    step_ns = number(means["dur_ns"].mean())
    exposed_ns, whole_ns = (
        number(table[name].sum()) for name in ("exposed_transfer_ns", "transfer_ns")
    )
    return (
        finding(
            DETECTOR,
            Status.FOUND,
            title=f"Gradients are reduced {times:.3g} times a step, in each micro-batch anew",
            cause=Cause.REPEATED_WORK,
            groups=tuple(table["group"].unique(maintain_order=True).to_list()),
            measured=shared[0],
            limit=shared[1],
            saving=saving(
                exposed_ns,
                whole_ns,
                step_ns,
                means.height,
                "gradients are reduced in the last micro-batch alone; low end: what nothing hides "
                f"of the other reductions, {text(exposed_ns, Unit.NS)} a step",
            ),
            confidence=Confidence(
                Level.MEDIUM, "the same bytes in each micro-batch, by who launched what"
            ),
            recommendation=ADVICE,
            evidence=(_evidence(table),),
        ),
    )


def _n_turns(run: Run, rank: int) -> int:
    """Most backward turns that a step of a rank has."""
    counts = turns(run, rank).filter(~pl.col("is_forward")).group_by("step").len().collect()
    return int(number(counts["len"].max()))


def _by_group(run: Run, rows: pl.DataFrame) -> pl.DataFrame:
    """Repeated reductions a step of a rank that takes part, by group and operation."""
    n_steps = max(1, len(averages(run).steps))
    calls = averaged(run, call_exposure).join(
        rows.select("rank", "instance").unique(), on=["rank", "instance"], how="semi"
    )
    sizes = rows.group_by("group", "operation", "rank").agg(bytes=pl.col("bytes_in").sum())
    return (
        calls.group_by("group", "operation", "rank")
        .agg(
            pl.len().alias("n_calls"),
            pl.col("transfer_ns", "exposed_transfer_ns").sum(),
        )
        .join(sizes, on=["group", "operation", "rank"], validate="1:1")
        .group_by("group", "operation")
        .agg(pl.col("n_calls", "bytes", "transfer_ns", "exposed_transfer_ns").mean() / n_steps)
        .sort("exposed_transfer_ns", "group", descending=[True, False])
        .head(MAX_ROWS)
    )


def _evidence(table: pl.DataFrame) -> Evidence:
    return Evidence(
        title="Repeated reductions of a mean step",
        columns=(
            Column("group"),
            Column("operation"),
            Column("calls", Unit.COUNT),
            Column("bytes put in", Unit.BYTES),
            Column("transfer", Unit.NS),
            Column("of it exposed", Unit.NS),
        ),
        rows=tuple(table.iter_rows()),
    )


DETECTOR = Detector(
    id="redundant-gradient-sync",
    title="Gradients are reduced more often than once a step",
    clear="Gradients are reduced once a step",
    needs=(COLLECTIVES,),
    how="Record whole steps with CPU and CUDA activity on, and with the process groups.",
    min_ranks=2,
    limits=Limits,
    detect=detect,
    cure=without_repeated_reductions,
)
