"""Reductions of gradients and the compute behind them run one after the other, without need.

What it measures:
    Reductions of data parallel groups beside which no compute runs, and whose end lets compute go
    on that was queued all the while: backward compute never waits for gradients.

Formula:
    A reduction holds compute where at most a tenth of it is hidden, and the next compute kernel of
    the device (none that needs the gradients: the optimizer, their norm) was queued 20 µs before it
    ended and begins within 20 µs of its end.
    measured = mean over ranks and averaged steps of the exposed transfer of such reductions / T.

Threshold:
    Found when measured is at least `max_step_share` and at least `min_share` of a step's reductions
    hold compute: the last ones of a step may only seem to.

Evidence:
    Reductions by group and operation: how many hold compute, on the stream of the compute or on one
    of their own, and for how long.

What-if saving:
    The exposed transfer of these reductions, which the held compute could hide; at most what a
    replay gains in which they take no time.

Recommendation:
    On the compute's own stream: give communication one of its own. On another: the device takes
    work of all streams from one queue; CUDA_DEVICE_MAX_CONNECTIONS=1 does that, and tensor or
    sequence parallelism of Megatron needs it.

References:
    https://github.com/NVIDIA/Megatron-LM/issues/636
    https://docs.nvidia.com/cuda/cuda-c-programming-guide/ (CUDA_DEVICE_MAX_CONNECTIONS)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.derive.activity import has_device_events
from tracekit.derive.averages import averages, mean_steps
from tracekit.derive.groups import groups
from tracekit.derive.held_compute import held
from tracekit.derive.savings import saving
from tracekit.detectors import Detector, finding, number, skipped
from tracekit.detectors._cures import hidden_reductions
from tracekit.detectors._transfers import ON_HOSTS
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

VARIABLE = "CUDA_DEVICE_MAX_CONNECTIONS"
MAX_ROWS = 16


@dataclass(frozen=True, slots=True)
class Limits:
    """How much must be held back, and by how many of the reductions."""

    max_step_share: float = limit(
        0.02, Unit.SHARE, "Below a fiftieth of a step nobody changes how streams are used."
    )
    min_share: float = limit(
        0.5,
        Unit.SHARE,
        "One of a few may be chance; where most hold compute, something makes them.",
    )
    min_calls: float = limit(
        2.0, Unit.COUNT, "A single reduction a step comes after all compute that it could hide."
    )


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for the run."""
    if not has_device_events(run):
        return (skipped(DETECTOR, ON_HOSTS),)
    means, calls = mean_steps(run), held(run)
    if means.is_empty() or calls.is_empty():
        return (skipped(DETECTOR, f"no reduction of gradients was seen. {DETECTOR.how}"),)
    n_parts = max(1, means.height * len(averages(run).steps))
    holding = calls.filter("is_held")
    step_ns = number(means["dur_ns"].mean())
    exposed_ns = number(holding["exposed_transfer_ns"].sum()) / n_parts
    shown: dict[str, Any] = {
        "measured": Quantity(exposed_ns / step_ns, Unit.SHARE),
        "limit": Quantity(limits.max_step_share, Unit.SHARE),
    }
    is_found = (
        shown["measured"].value >= limits.max_step_share
        and holding.height >= limits.min_share * calls.height
        and holding.height >= limits.min_calls * n_parts
    )
    if not is_found:
        return (finding(DETECTOR, Status.CLEAR, **shown),)
    is_same = number(holding["is_same_stream"].cast(pl.Float64).mean()) > 0.5
    where = "in the stream of the compute" if is_same else "on a stream of their own"
    return (
        finding(
            DETECTOR,
            Status.FOUND,
            title=f"Reductions {where} hold back compute for {text(exposed_ns, Unit.NS)} a step",
            cause=Cause.SERIALIZED_STREAMS,
            groups=tuple(holding["group"].unique(maintain_order=True).to_list()[:MAX_ROWS]),
            saving=saving(
                exposed_ns,
                exposed_ns,
                step_ns,
                means.height,
                "the compute that is held back runs beside these reductions, and neither gets "
                "slower; upper bound",
            ),
            confidence=Confidence(
                Level.MEDIUM,
                f"{holding.height} of {calls.height} reductions end as queued compute begins",
            ),
            recommendation=_advice(run, is_same=is_same),
            evidence=(_by_group(calls),),
            **shown,
        ),
    )


def _advice(run: Run, *, is_same: bool) -> Recommendation:
    if is_same:
        return Recommendation(
            "Run communication in a stream of its own: process groups of torch do so by "
            "themselves; code that calls NCCL in the current stream does not.",
            Change.CODE,
        )
    set_to = {
        capture.facts.environment.get(VARIABLE)
        for capture in run.manifest.captures
        if capture.facts is not None
    }
    needs_one = "tensor" in groups(run)["dimension"].to_list()
    if set_to == {"1"} and not needs_one:
        return Recommendation(
            f"{VARIABLE}=1 makes the device take work of all streams from one queue: leave it out.",
            Change.SETTING,
            (f"unset {VARIABLE}",),
        )
    if set_to == {"1"}:
        return Recommendation(
            f"{VARIABLE}=1 makes the device take work of all streams from one queue. Tensor and "
            "sequence parallelism of Megatron need that order: leave it, and start reductions "
            "where the next compute is not queued yet.",
            Change.CODE,
        )
    return Recommendation(
        f"The device runs them one after the other. Look at {VARIABLE} (1 makes one queue of all "
        "streams), at waits between streams, and at communicators that several operations share.",
        Change.SETTING,
        (f"env | grep {VARIABLE}",),
    )


def _by_group(calls: pl.DataFrame) -> Evidence:
    table = (
        calls.group_by("group", "operation")
        .agg(
            n_calls=pl.len(),
            n_held=pl.col("is_held").sum(),
            n_same=(pl.col("is_held") & pl.col("is_same_stream")).sum(),
            held_ns=pl.col("exposed_transfer_ns").filter("is_held").sum(),
        )
        .sort("held_ns", "group", descending=[True, False])
        .head(MAX_ROWS)
    )
    return Evidence(
        title="Reductions of gradients, averaged steps of all ranks",
        columns=(
            Column("group"),
            Column("operation"),
            Column("calls", Unit.COUNT),
            Column("hold compute", Unit.COUNT),
            Column("in its stream", Unit.COUNT),
            Column("held back", Unit.NS),
        ),
        rows=tuple(table.iter_rows()),
    )


DETECTOR = Detector(
    id="serialized-communication",
    title="Communication and compute run one after the other",
    clear="Reductions let queued compute run",
    needs=(COLLECTIVES,),
    how="Record whole steps of all ranks with CPU and CUDA activity on, and the process groups.",
    min_ranks=2,
    limits=Limits,
    detect=detect,
    cure=hidden_reductions,
    is_bound=True,
)
