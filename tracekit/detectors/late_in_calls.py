"""One rank comes last to the calls of its group, time and again, and the others wait in them.

What it measures:
    For sources that record calls without steps (NCCL Inspector): who comes last in each call, and
    for how long the next to last waits. No member leaves a call before the last has entered, so
    that the one whose call is shortest came last; clocks are not needed.

Formula:
    d: durations of a call over its members, sorted. lead = d₂ - d₁: what the call would be shorter
    for all if its last rank came with the one before it. measured = Σ lead of the calls that the
    rank comes last in / Σ longest d of all calls of the group.

Threshold:
    Found when measured is at least `min_share` and the rank comes last in `min_leads_share` of the
    calls, of which there are `min_calls`. Calls of which a member was not recorded say nothing.

Evidence:
    How often each rank of the group comes last, and how long the others wait then.

What-if saving:
    None: without steps it is not known what a step gains.

Recommendation:
    Record some steps of this rank and of a peer with the profiler: the calls say who comes late,
    and not why.

References:
    DEFINITIONS of waiting: docs/communication.md. NCCL Inspector: github.com/NVIDIA/nccl,
    plugins/profiler/inspector.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.derive.averages import mean_steps
from tracekit.derive.waits import waits
from tracekit.detectors import Detector, finding, number, skipped
from tracekit.findings import (
    Cause,
    Change,
    Column,
    Confidence,
    Evidence,
    Finding,
    Level,
    Recommendation,
    Scope,
    Severity,
    Status,
)
from tracekit.schema import COLLECTIVES
from tracekit.units import Quantity, Unit, limit, text

if TYPE_CHECKING:
    from tracekit.store import Run

MAX_FINDINGS, MAX_SHOWN = 4, 16
LOUD_SHARE = 0.1
"""Of the time in calls; below it a finding is a note."""
ADVICE = Recommendation(
    "Record some steps of this rank and of a peer with the profiler: they show what the rank does "
    "before it calls. Compare clocks, power and temperature of its device meanwhile.",
    Change.SETTING,
    (
        "with tracekit.collect('runs/my-job', every=1000) as c: …  # c.step() after each step",
        "nvidia-smi --query-gpu=index,clocks.sm,temperature.gpu,power.draw --format=csv",
    ),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """How often, and for how long, the others must wait for one rank."""

    min_share: float = limit(
        0.03, Unit.SHARE, "Ranks of healthy jobs enter within a few hundredths of a call."
    )
    min_leads_share: float = limit(
        0.6, Unit.SHARE, "A rank that comes last in half of the calls takes turns."
    )
    min_calls: int = limit(20, Unit.COUNT, "Coming last in a few calls is chance.")


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for each rank that comes last, the worst first; else one for the run."""
    if not mean_steps(run).is_empty():
        why = "steps were recorded: straggler-rank compares the ranks by them."
        return (skipped(DETECTOR, why, is_of_further_source=True),)
    by_rank = _by_rank(run)
    shared: dict[str, Any] = {"limit": Quantity(limits.min_share, Unit.SHARE)}
    known = by_rank.filter(pl.col("n_calls") >= limits.min_calls)
    if known.is_empty():
        why = "no group has enough calls of which all members were recorded. " + DETECTOR.how
        return (skipped(DETECTOR, why, is_of_further_source=True),)
    late = known.filter(
        (pl.col("share") >= limits.min_share) & (pl.col("leads_share") >= limits.min_leads_share)
    ).unique("rank", keep="first", maintain_order=True)
    if late.is_empty():
        most = Quantity(number(known["share"].max()), Unit.SHARE)
        return (finding(DETECTOR, Status.CLEAR, measured=most, **shared),)
    rows = late.head(MAX_FINDINGS).iter_rows(named=True)
    return tuple(_found(run, row, by_rank, shared) for row in rows)


def _by_rank(run: Run) -> pl.DataFrame:
    """How often each rank of a group comes last, and what that costs.

    Returns:
        `group`, `rank`, `n_calls` (of the group), `n_last`, `lead_ns`, `calls_ns`, `leads_share`,
        `share`; the largest share first.
    """
    here = "instance"
    calls = waits(run).filter(pl.col("transfer_ns").is_not_null())
    ends = calls.sort("dur_ns", "rank").group_by(here, maintain_order=True).agg(
        pl.col("group", "rank").first(),
        lead_ns=pl.col("dur_ns").get(1) - pl.col("dur_ns").first(),
        longest_ns=pl.col("dur_ns").last(),
    )  # fmt: skip
    of_group = pl.col("longest_ns").sum().over("group"), pl.len().over("group").cast(pl.Int64)
    return (
        ends.with_columns(calls_ns=of_group[0], n_calls=of_group[1])
        .group_by("group", "rank")
        .agg(
            pl.col("n_calls", "calls_ns").first(),
            n_last=pl.len().cast(pl.Int64),
            lead_ns=pl.col("lead_ns").sum(),
        )
        .with_columns(
            leads_share=pl.col("n_last") / pl.col("n_calls"),
            share=pl.col("lead_ns") / pl.col("calls_ns").clip(1),
        )
        .sort("share", "group", "rank", descending=[True, False, False])
        .collect()
    )


def _found(run: Run, row: dict[str, Any], by_rank: pl.DataFrame, shared: dict[str, Any]) -> Finding:
    rank, group, share = int(row["rank"]), row["group"], float(row["share"])
    members = waits(run).filter(pl.col("group") == group).select("rank").unique().collect()
    each_ns = row["lead_ns"] / row["n_last"]
    return finding(
        DETECTOR,
        Status.FOUND,
        subject=f"rank {rank}",
        title=f"Rank {rank} comes last in {row['n_last']:,} of {row['n_calls']:,} calls of "
        f"{group}, and all others wait {text(each_ns, Unit.NS)} for it in each",
        severity=Severity.WARNING if share >= LOUD_SHARE else Severity.INFO,
        cause=Cause.UNKNOWN,
        why=f"{text(share, Unit.SHARE)} of the time in these calls is waiting for it alone",
        ranks=(rank,),
        groups=(group,),
        measured=Quantity(share, Unit.SHARE),
        confidence=Confidence(
            Level.HIGH if row["leads_share"] >= 0.9 else Level.MEDIUM,
            "the device's own times of each call; no clock is compared",
        ),
        scope=Scope(victims=tuple(sorted(set(members["rank"].to_list()) - {rank}))),
        recommendation=ADVICE,
        evidence=(_ranks(by_rank.filter(group=group), group),),
        **shared,
    )


def _ranks(rows: pl.DataFrame, group: str) -> Evidence:
    shown = rows.head(MAX_SHOWN).select("rank", "n_last", "lead_ns", "share")
    return Evidence(
        title=f"Who comes last in calls of {group}",
        columns=(
            Column("rank"),
            Column("comes last in calls", Unit.COUNT),
            Column("the others wait, all calls", Unit.NS),
            Column("of the time in calls", Unit.SHARE),
        ),
        rows=tuple(shown.iter_rows()),
    )


DETECTOR = Detector(
    id="late-in-calls",
    title="A rank comes last to the calls of its group",
    clear="No rank comes last in most calls of its group",
    needs=(COLLECTIVES,),
    how="Run the job with NCCL Inspector (docs/nccl.md) and give the files of all ranks.",
    limits=Limits,
    detect=detect,
)
