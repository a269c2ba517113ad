"""What detectors of host stalls share: what they show, how sure they are, and when all is well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.derive.activity import HOST_DEVICE, has_device_events
from tracekit.derive.averages import averages, mean_steps
from tracekit.derive.idle import NOT_RECORDED
from tracekit.derive.idle_totals import idle_by_cause
from tracekit.derive.profiler_cost import costly_options
from tracekit.detectors import Detector, finding, skipped
from tracekit.findings import Column, Confidence, Evidence, Finding, Level, Status
from tracekit.units import Quantity, Unit, text

if TYPE_CHECKING:
    from tracekit.store import Run

N_SHOWN = 16
MAX_UNSEEN_SHARE = 0.05
"""Idle time without any call of the host in it: beyond this a check would be blind."""
NOTHING = "no step holds device activity or host operators"
ASSUMES = (
    "the host launches in time on all ranks, and nothing else holds the devices up; low end: only "
    "stalls longer than the same rank's waiting for others"
)


def shown_of(run: Run, share: float, max_share: float) -> dict[str, Any]:
    """What a finding shows of a share of the step, found or not: value, limit, confidence."""
    return {
        "measured": Quantity(share, Unit.SHARE),
        "limit": Quantity(max_share, Unit.SHARE),
        "confidence": confidence(run),
    }


def not_found(
    detector: Detector, run: Run, shown: dict[str, Any], evidence: Evidence
) -> tuple[Finding, ...]:
    """Within the limit: clear, or skipped where the traces do not show what the host did."""
    why = _unseen(run)
    if why:
        return (skipped(detector, why),)
    return (finding(detector, Status.CLEAR, evidence=(evidence,), **shown),)


def _unseen(run: Run) -> str:
    """Why nothing can be said of the host: most idle time has no call in the traces; else empty."""
    rows = mean_steps(run)
    step_ns, idle_ns = float(rows["dur_ns"].sum()), float(rows["idle_ns"].sum())
    causes = idle_by_cause(run).filter(cause=NOT_RECORDED)
    unseen_ns = float(causes["dur_ns"].sum()) / max(len(averages(run).steps), 1)
    if unseen_ns < MAX_UNSEEN_SHARE * step_ns or 2 * unseen_ns < idle_ns:
        return ""
    return (
        f"for {text(unseen_ns / step_ns, Unit.SHARE)} of the mean step the devices are idle, and "
        "the calls that launched what came next are not in the traces. Record with "
        "ProfilerActivity.CPU as well as CUDA, over whole steps."
    )


def at_fault(ranks: pl.DataFrame, min_share: float) -> tuple[int, ...]:
    """Ranks stalled for a share of their step, and half as long as the worst one, sorted.

    Args:
        ranks: rows of `by_rank`.
        min_share: the least share of a step that counts.
    """
    is_at_fault = (pl.col("share") >= min_share) & (
        2 * pl.col("stall_ns") >= pl.col("stall_ns").max()
    )
    return tuple(sorted(ranks.filter(is_at_fault)["rank"].unique().to_list()))


def confidence(run: Run) -> Confidence:
    """How sure figures about the host are: the profiler slows it, with some options much."""
    options = costly_options(run)
    if options:
        return Confidence(
            Level.LOW,
            f"recorded with {', '.join(options)}, which slows the host: an upper bound. Record "
            "again without them",
        )
    if not has_device_events(run):
        why = "no device events: the training thread stands for the device"
        return Confidence(Level.MEDIUM, why)
    return Confidence(Level.MEDIUM, "the profiler itself slows the host a little")


def ranks_table(what: str, ranks: pl.DataFrame) -> Evidence:
    """Stalls by rank in the mean step (rows of `by_rank`), the longest first."""
    device = pl.col("device").replace(HOST_DEVICE, None)  # a training thread has no number
    rows = ranks.select("rank", device, "step_ns", "stall_ns", "share", "n_stalls")
    return Evidence(
        title=f"{what} by rank, mean step",
        columns=(
            Column("rank"),
            Column("device"),
            Column("step", Unit.NS),
            Column("stalled", Unit.NS),
            Column("share of the step", Unit.SHARE),
            Column("stalls", Unit.COUNT),
        ),
        rows=tuple(rows.head(N_SHOWN).iter_rows()),
    )


def calls_table(what: str, calls: pl.DataFrame) -> Evidence:
    """Stalls by the host call in which they fell (rows of `by_call`)."""
    rows = calls.select(pl.col("detail").str.slice(0, 120), "n_stalls", "stall_ns", "longest_ns")
    return Evidence(
        title=f"{what} by host call, mean rank and step",
        columns=(
            Column("host call"),
            Column("stalls", Unit.COUNT),
            Column("stalled", Unit.NS),
            Column("longest", Unit.NS),
        ),
        rows=tuple(rows.head(N_SHOWN).iter_rows()),
    )
