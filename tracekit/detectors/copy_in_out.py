"""Tensors are concatenated before collectives, or taken apart after them, in series with them.

What it measures:
    Copies on the device that end right before a collective begins, or begin right after one ended
    (20 µs), several one after the other included, while nothing else runs on the device.

Formula:
    measured = mean over ranks and averaged steps of Σ |copy ∖ (other compute ∪ communication)| / T.

Threshold:
    Found when measured is at least `max_step_share`. Skipped of jobs without devices.

Evidence:
    Copies by group and operation of the collective: how many, before or after it, for how long.

What-if saving:
    Low: what a replay gives in which these copies take no time. High: all of their exposed time.

Recommendation:
    Keep tensors where the collective takes them: gradients as views of their bucket, parameters in
    one flat buffer.

References:
    https://arxiv.org/abs/2304.11277 (PyTorch FSDP: flat parameters).
    https://arxiv.org/abs/2411.00284 (SimpleFSDP: copies around bucketed collectives).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.derive.activity import has_device_events
from tracekit.derive.averages import averages, mean_steps
from tracekit.derive.copy_in_out import series_copies
from tracekit.derive.savings import saving
from tracekit.detectors import Detector, finding, number, skipped
from tracekit.detectors._cures import without_series_copies
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

MAX_SHOWN = 16
ADVICE = Recommendation(
    "Keep tensors where the collective takes them: gradients as views of their bucket, parameters "
    "in one flat buffer that is gathered in place. Where copies stay, let them run beside the "
    "compute before.",
    Change.CODE,
    (
        "DistributedDataParallel(..., gradient_as_bucket_view=True)",
        "torch.distributed.all_gather_into_tensor(...)  # in place of a list of tensors",
    ),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a step copies beside collectives may take."""

    max_step_share: float = limit(
        0.02, Unit.SHARE, "Below a fiftieth of a step nobody lays buffers out anew."
    )


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for the run."""
    if not has_device_events(run):
        return (skipped(DETECTOR, ON_HOSTS),)
    means = mean_steps(run)
    if means.is_empty():
        return (skipped(DETECTOR, f"no steps. {DETECTOR.how}"),)
    copies = series_copies(run)
    step_ns = number(means["dur_ns"].mean())
    n_parts = max(1, means.height * len(averages(run).steps))
    exposed_ns = number(copies["exposed_ns"].sum()) / n_parts
    shown: dict[str, Any] = {
        "measured": Quantity(exposed_ns / step_ns, Unit.SHARE),
        "limit": Quantity(limits.max_step_share, Unit.SHARE),
    }
    if exposed_ns < limits.max_step_share * step_ns:
        return (finding(DETECTOR, Status.CLEAR, **shown),)
    n_calls = copies.height / n_parts
    return (
        finding(
            DETECTOR,
            Status.FOUND,
            title=f"Copies around collectives take {text(exposed_ns, Unit.NS)} of each step",
            cause=Cause.COPY_IN_OUT,
            groups=tuple(copies["group"].unique().sort().to_list()[:MAX_SHOWN]),
            saving=saving(
                exposed_ns,
                exposed_ns,
                step_ns,
                means.height,
                "tensors lie where the collective takes them, and these copies go; upper bound",
            ),
            confidence=Confidence(
                Level.MEDIUM,
                f"{n_calls:.0f} copies a step right before or after a collective, by time and name",
            ),
            recommendation=ADVICE,
            evidence=(_table(copies, n_parts),),
            **shown,
        ),
    )


def _table(copies: pl.DataFrame, n_parts: int) -> Evidence:
    rows = (
        copies.group_by("group", "operation", "is_before")
        .agg(
            pl.col("name").mode().sort().first(),
            n=pl.len() / n_parts,
            exposed_ns=pl.col("exposed_ns").sum() / n_parts,
        )
        .sort("exposed_ns", "group", descending=[True, False])
        .select(
            "group",
            pl.col("operation").fill_null("not known"),
            pl.when("is_before").then(pl.lit("before")).otherwise(pl.lit("after")),
            "name",
            "n",
            "exposed_ns",
        )
        .head(MAX_SHOWN)
    )
    return Evidence(
        title="Copies around collectives, mean step of a rank",
        columns=(
            Column("group"),
            Column("operation"),
            Column("where"),
            Column("kernel"),
            Column("a step", Unit.COUNT),
            Column("while nothing else runs", Unit.NS),
        ),
        rows=tuple(rows.iter_rows()),
    )


DETECTOR = Detector(
    id="copy-in-out",
    title="Copies around collectives take time of their own",
    clear="Collectives take tensors where they lie",
    needs=(COLLECTIVES,),
    how="Record whole steps of all ranks with CUDA activity on.",
    limits=Limits,
    detect=detect,
    cure=without_series_copies,
    is_bound=True,
)
