"""The host waits for the device, and then the device waits for the host.

What it measures:
    Time in which a device is idle because a call of its host had waited for it, and so drained the
    queue of launched work: `.item()`, `.cpu()`, a copy from pageable memory, a synchronisation.

Formula:
    A gap of a device whose host part follows a blocking call that had waited for this device
    (definitions, section 4), launch latency behind it included; gaps in which the host then loads,
    saves, compiles or allocates belong to those. Measured: such stalls / T of the rank with most,
    over averaged steps.

Threshold:
    Found when the rank that loses most is stalled for at least `max_step_share` of its step.

Evidence:
    Stalls by blocking call with the operator around it; stalls by rank; blocking calls a step, and
    copies of at most 4 KiB from the device among them.

What-if saving:
    The calls go, so that the host runs ahead: at most what it spent in them, since without them it
    still has its own work to do. Low: less the waiting of the same rank for others, and less what
    recording the operators in those gaps may have taken.

Recommendation:
    Remove calls that wait for the device inside the step; log every n steps. Where small values are
    read back before each stall: pad sizes to an upper bound, keep them on the device, capture.

References:
    https://pytorch.org/tutorials/recipes/recipes/tuning_guide.html,
    https://arxiv.org/abs/2605.29346 (metadata read back before each launch burst of a GNN)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.averages import averaged
from tracekit.derive.blocking import blocking_calls
from tracekit.derive.host_kinds import HOST_SYNC
from tracekit.derive.host_work import host_work
from tracekit.derive.profiler_cost import costly_options
from tracekit.derive.savings import saving
from tracekit.derive.stalls import by_call, by_rank, removable_ns, stalled
from tracekit.detectors import Detector, finding, number, skipped
from tracekit.detectors._cures import without_waits
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
    Published,
    Recommendation,
    Status,
)
from tracekit.schema import LAUNCHES
from tracekit.units import Unit, limit, text

if TYPE_CHECKING:
    from tracekit.store import Run

_METADATA = Recommendation(
    "Keep sizes on the device, padded to an upper bound, so that the host needs none of them; then "
    "capture the step as a CUDA graph.",
    Change.CODE,
    ("torch.cuda.set_sync_debug_mode('warn')", "torch.cuda.CUDAGraph()"),
)
MIN_READS = 2
"""One value read back a step is the loss; more of them, one before each stall, are metadata."""
_IS_DRAINED = pl.col("class") == HOST_SYNC


@dataclass(frozen=True, slots=True)
class Limits:
    """When calls that drain the queue are worth a look."""

    max_step_share: float = limit(
        0.03, Unit.SHARE, "One read of the loss at the end of a step costs 0.1–1 % of it."
    )


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for the run."""
    rows = stalled(run, _IS_DRAINED)
    if rows.is_empty():
        return (skipped(DETECTOR, f"{NOTHING}. {DETECTOR.how}"),)
    ranks = by_rank(rows)
    share = number(ranks["share"].max())
    shown = shown_of(run, share, limits.max_step_share)
    table = ranks_table("Stalls behind blocking calls", ranks)
    if share < limits.max_step_share:
        return not_found(DETECTOR, run, shown, table)
    named = at_fault(ranks, limits.max_step_share)
    calls = by_call(run, _IS_DRAINED)
    blocked = averaged(run, blocking_calls)
    gain = removable_ns(_bounded(rows, blocked))
    n_stalls = number(ranks["n_stalls"][0])
    n_reads = number(averaged(run, host_work)["n_small_reads"].mean())
    is_metadata = n_reads >= max(MIN_READS, n_stalls / 2)
    reads = f" to read {n_reads:,.0f} small values a step" if is_metadata else ""
    return (
        finding(
            DETECTOR,
            Status.FOUND,
            title=f"Waiting for the device leaves it idle {text(round(n_stalls), Unit.COUNT)} "
            f"{'time' if round(n_stalls) == 1 else 'times'} a step",
            cause=Cause.HOST_SYNC,
            ranks=named,
            saving=None
            if costly_options(run)
            else saving(
                gain.low, gain.high, number(ranks["step_ns"].mean()), ranks.height, ASSUMES
            ),
            evidence=(
                calls_table("Stalls behind blocking calls", calls),
                table,
                _blocked_table(blocked),
            ),
            recommendation=_METADATA if is_metadata else None,
            why=f"the host waits for the device in {calls['detail'][0]}{reads}, which drains its "
            "queue",
            **shown,
        ),
    )


def _bounded(rows: pl.DataFrame, blocked: pl.DataFrame) -> pl.DataFrame:
    """Stalls of a step are worth at most what its blocking calls took."""
    most = pl.col("blocked_ns").fill_null(0)
    return rows.join(
        blocked.group_by("rank", "step").agg(pl.col("blocked_ns").sum()),
        on=["rank", "step"],
        how="left",
        validate="m:1",
    ).with_columns(
        sure_ns=pl.min_horizontal("sure_ns", most), stall_ns=pl.min_horizontal("stall_ns", most)
    )


def _blocked_table(blocked: pl.DataFrame) -> Evidence:
    rows = (
        blocked.group_by("name")
        .agg(
            n_calls=pl.col("n_calls").sum() / pl.struct("rank", "step").n_unique(),
            blocked_ns=pl.col("blocked_ns").sum() / pl.struct("rank", "step").n_unique(),
        )
        .sort("blocked_ns", "name", descending=[True, False])
        .head(16)
    )
    return Evidence(
        title="Blocking calls, mean rank and step",
        columns=(Column("call"), Column("calls", Unit.COUNT), Column("host held", Unit.NS)),
        rows=tuple(rows.iter_rows()),
    )


DETECTOR = Detector(
    id="host-sync",
    title="Waiting for the device leaves it idle",
    clear="The host hardly waits for the device",
    needs=(LAUNCHES,),
    how="Record with ProfilerActivity.CUDA and ProfilerActivity.CPU.",
    limits=Limits,
    detect=detect,
    cure=without_waits,
    bounded_by="idle-gpu",
    published=(Published(29, "ZeroGNN", "2605.29346"),),
)
