"""Many small collectives: their starts take the time, not their bytes.

What it measures:
    Collectives of data parallel groups below the size at which bytes cost as much as the start, by
    the line t = latency + bytes / bandwidth through the medians of all sizes.

Formula:
    In buckets of 25 MB the small calls of a step, n with B bytes, would start ceil(B / 25 MB)
    times. gain of a call = transfer − bytes / bandwidth − latency · buckets / n.
    measured = mean over ranks and averaged steps of the exposed part of the gains / T.

Threshold:
    Found when measured is at least `max_step_share` and a step has `min_calls` small calls.
    Skipped where sizes are too few, or too much alike, for the line.

Evidence:
    By group and operation: small calls a step, their bytes, the latency, and the buckets that would
    hold them.

What-if saving:
    Low: what of the gains nothing hides, which a replay gives in which small calls take their part
    of a bucket. High: all of the gains.

Recommendation:
    Put gradients into buckets; coalesce collectives of one group.

References:
    https://arxiv.org/abs/2006.15704 (PyTorch Distributed: gradient bucketing, section 3.2.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.derive.averages import averages, mean_steps
from tracekit.derive.communication import lines
from tracekit.derive.savings import saving
from tracekit.derive.small_calls import small_calls
from tracekit.detectors import Detector, finding, number, skipped
from tracekit.detectors._cures import bucketed
from tracekit.findings import Cause, Column, Confidence, Evidence, Finding, Level, Status
from tracekit.schema import COLLECTIVES
from tracekit.units import Quantity, Unit, limit, text

if TYPE_CHECKING:
    from tracekit.store import Run

MAX_ROWS = 16


@dataclass(frozen=True, slots=True)
class Limits:
    """How much the starts must cost, and how many there must be."""

    max_step_share: float = limit(
        0.02, Unit.SHARE, "Below a fiftieth of a step other buckets are not worth a trial."
    )
    min_calls: int = limit(
        8, Unit.COUNT, "A handful of small calls (a loss, norms, a last bucket) is in every step."
    )


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for the run."""
    means = mean_steps(run)
    if means.is_empty() or lines(run).is_empty():
        return (skipped(DETECTOR, f"no three sizes that differ four times. {DETECTOR.how}"),)
    step_ns = number(means["dur_ns"].mean())
    calls = small_calls(run).filter(pl.col("n_calls") >= limits.min_calls)
    n_parts = max(1, means.height * len(averages(run).steps))
    exposed_ns = number(calls["exposed_gain_ns"].sum()) / n_parts
    gain_ns = number((calls["took_ns"] - calls["merged_ns"]).sum()) / n_parts
    shown: dict[str, Any] = {
        "measured": Quantity(exposed_ns / step_ns, Unit.SHARE),
        "limit": Quantity(limits.max_step_share, Unit.SHARE),
    }
    if shown["measured"].value < limits.max_step_share:
        return (finding(DETECTOR, Status.CLEAR, **shown),)
    table = _by_group(run, calls)
    n_calls, n_buckets = (number(table[name].sum()) for name in ("n_calls", "n_buckets"))
    return (
        finding(
            DETECTOR,
            Status.FOUND,
            title=f"{n_calls:,.0f} small collectives a step cost their starts: {n_buckets:,.0f} "
            "would do",
            cause=Cause.SMALL_MESSAGES,
            groups=tuple(table["group"].unique(maintain_order=True).to_list()),
            saving=saving(
                exposed_ns,
                gain_ns,
                step_ns,
                means.height,
                "small collectives are merged into buckets of 25 MB; low end: what nothing hides "
                f"of that, {text(exposed_ns, Unit.NS)} a step",
            ),
            confidence=Confidence(Level.MEDIUM, "from a line through the medians of all sizes"),
            evidence=(_evidence(table),),
            **shown,
        ),
    )


def _by_group(run: Run, calls: pl.DataFrame) -> pl.DataFrame:
    """The small calls of a mean step of a rank, by group and operation."""
    n_steps = max(1, len(averages(run).steps))
    return (
        calls.group_by("group", "operation", "rank", "step")
        .agg(
            n_calls=pl.len(),
            size_bytes=pl.col("size_bytes").sum(),
            took_ns=pl.col("took_ns").sum(),
            latency_ns=pl.col("latency_ns").first(),
            n_buckets=pl.col("n_buckets").first(),
        )
        .group_by("group", "operation", "rank")
        .agg(
            pl.col("n_calls", "size_bytes", "took_ns", "n_buckets").sum() / n_steps,
            pl.col("latency_ns").first(),
        )
        .group_by("group", "operation")
        .agg(pl.col("n_calls", "size_bytes", "took_ns", "n_buckets", "latency_ns").mean())
        .sort("took_ns", "group", descending=[True, False])
        .head(MAX_ROWS)
    )


def _evidence(table: pl.DataFrame) -> Evidence:
    return Evidence(
        title="Small collectives of a mean step",
        columns=(
            Column("group"),
            Column("operation"),
            Column("calls", Unit.COUNT),
            Column("bytes", Unit.BYTES),
            Column("transfers", Unit.NS),
            Column("buckets", Unit.COUNT),
            Column("start of one", Unit.NS),
        ),
        rows=tuple(table.iter_rows()),
    )


DETECTOR = Detector(
    id="small-collectives",
    title="Many small collectives",
    clear="Collectives are large enough",
    needs=(COLLECTIVES,),
    how="Record whole steps of all ranks with collective metadata (torch 2.4 or later).",
    min_ranks=2,
    limits=Limits,
    detect=detect,
    cure=bucketed,
)
