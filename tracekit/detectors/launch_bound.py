"""The host cannot launch kernels as fast as the devices run them.

What it measures:
    Time in which devices are idle in many short gaps, because the next kernel had not been
    launched yet: operators, launch calls and the Python between them.

Formula:
    Gaps of a device whose host part (definitions, section 4) is covered most by operators and
    launches, or by nothing recorded, and is at most `max_gap` long, launch latency behind it
    included. Measured: such gaps / T, median over ranks: one rank alone is a slow host, which
    straggler-rank names.

Threshold:
    Found when the median rank is starved for at least `max_step_share` of its step.

Evidence:
    Kernels a step, kernels per second, their median duration, the share that graphs launch; gaps by
    rank and by host call.

What-if saving:
    Launches come in time. Low: less what recording the operators in those gaps may have taken, and
    less the waiting of the same rank for others; high: all such gaps. None where stacks, shapes or
    memory were recorded.

Recommendation:
    CUDA graphs or torch.compile; fewer, larger kernels; fused optimizers; larger batches.

References:
    https://pytorch.org/blog/accelerating-pytorch-with-cuda-graphs/
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.averages import averaged
from tracekit.derive.host_kinds import HOST_OTHER, LAUNCH_OVERHEAD
from tracekit.derive.host_work import host_work
from tracekit.derive.profiler_cost import costly_options
from tracekit.derive.savings import saving
from tracekit.derive.stalls import by_call, by_rank, removable_ns, stalled
from tracekit.detectors import Detector, finding, number, skipped
from tracekit.detectors._cures import without_launching
from tracekit.detectors._stalls import (
    ASSUMES,
    N_SHOWN,
    NOTHING,
    at_fault,
    calls_table,
    not_found,
    ranks_table,
    shown_of,
)
from tracekit.findings import Cause, Column, Evidence, Finding, Status
from tracekit.schema import KERNELS, LAUNCHES
from tracekit.units import Unit, limit, text

if TYPE_CHECKING:
    from tracekit.store import Run


@dataclass(frozen=True, slots=True)
class Limits:
    """When launching is too slow."""

    max_step_share: float = limit(
        0.1, Unit.SHARE, "Eager runs that keep their devices busy lose 1–9 % of a step so."
    )
    max_gap_ns: int = limit(
        1_000_000, Unit.NS, "An operator takes its host 5–100 µs: a longer gap is one event."
    )


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for the run."""
    is_class = pl.col("class").is_in([LAUNCH_OVERHEAD, HOST_OTHER])
    chosen = is_class & (pl.col("host_ns") <= limits.max_gap_ns)
    rows = stalled(run, chosen)
    if rows.is_empty():
        return (skipped(DETECTOR, f"{NOTHING}. {DETECTOR.how}"),)
    ranks = by_rank(rows)
    share = number(ranks["share"].quantile(0.5, "lower"))
    facts = _facts(run)
    shown = shown_of(run, share, limits.max_step_share)
    if share < limits.max_step_share:
        return not_found(DETECTOR, run, shown, _facts_table(facts))
    gain = removable_ns(rows)
    step_ns = number(ranks["step_ns"].mean())
    per_s, median_ns = number(facts["kernels_per_s"].median()), number(facts["median_ns"].median())
    return (
        finding(
            DETECTOR,
            Status.FOUND,
            title=f"Launching starves the devices for {text(share, Unit.SHARE)} of a step",
            cause=Cause.LAUNCH_OVERHEAD,
            ranks=at_fault(ranks, limits.max_step_share),
            saving=None
            if costly_options(run)
            else saving(gain.low, gain.high, step_ns, ranks.height, ASSUMES),
            evidence=(
                _facts_table(facts),
                ranks_table("Gaps before late launches", ranks),
                calls_table("Gaps before late launches", by_call(run, chosen)),
            ),
            why=f"the host launches {per_s:,.0f} kernels a second, half of them shorter than "
            f"{text(median_ns, Unit.NS)}, and the devices wait for it",
            **shown,
        ),
    )


def _facts(run: Run) -> pl.DataFrame:
    """Kernels and launches of each rank in the mean step; what was not recorded is null.

    Columns: `rank`, `n_kernels`, `kernels_per_s`, `median_ns` (of a kernel), `graph_share`,
    `n_launches`, `launch_ns` (median).
    """
    n_kernels = pl.col("n_kernels")
    return (
        averaged(run, host_work)
        .group_by("rank")
        .agg(
            n_kernels=n_kernels.mean(),
            kernels_per_s=n_kernels.sum() * 1e9 / pl.col("dur_ns").sum(),
            median_ns=pl.col("median_kernel_ns").median(),
            graph_share=pl.col("n_graph_kernels").sum() / n_kernels.sum(),
            n_launches=pl.col("n_launches").mean(),
            launch_ns=pl.col("median_launch_ns").median(),
        )
        .with_columns(pl.col("graph_share").fill_nan(None))
        .sort("rank")
    )


def _facts_table(facts: pl.DataFrame) -> Evidence:
    return Evidence(
        title="Kernels and launches, mean step",
        columns=(
            Column("rank"),
            Column("kernels", Unit.COUNT),
            Column("kernels per second", Unit.COUNT),
            Column("median kernel", Unit.NS),
            Column("launched by graphs", Unit.SHARE),
            Column("launch calls", Unit.COUNT),
            Column("median launch call", Unit.NS),
        ),
        rows=tuple(facts.head(N_SHOWN).iter_rows()),
    )


DETECTOR = Detector(
    id="launch-bound",
    title="The host launches too slowly",
    clear="The host launches ahead of the devices",
    needs=(KERNELS, LAUNCHES),
    how="Record with ProfilerActivity.CUDA and ProfilerActivity.CPU.",
    limits=Limits,
    detect=detect,
    cure=without_launching(Limits().max_gap_ns),
    bounded_by="idle-gpu",
)
