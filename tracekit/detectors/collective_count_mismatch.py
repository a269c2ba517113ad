"""A rank calls more or fewer collectives in a step than the other members of its group.

What it measures:
    Collectives that each member of a group launched in each averaged step; messages and calls whose
    operation is not known are left out.

Formula:
    usual = the number that most members call in a step, of two equally frequent ones the larger. At
    fault are members that differ from it in every averaged step. measured = the largest difference,
    in the mean step.

Threshold:
    Found when members of a group differ by at least `min_calls` in each of `min_steps` steps or
    more: a call that one rank makes right before a step's mark and another right after it differs
    in one and makes up for it in the next. Skipped where members are not recorded.

Evidence:
    Calls of a step by group and rank, those of the ranks at fault first.

What-if saving:
    None: sooner or later calls pair that do not belong together, and the job stands still or is
    wrong.

Recommendation:
    Look for a branch that only some ranks take, and for loops whose length depends on the data of a
    rank.

References:
    https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/collectives.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.derive.activity import has_device_events
from tracekit.derive.call_counts import call_counts
from tracekit.detectors import Detector, finding, number, rank_list, skipped
from tracekit.detectors._transfers import ON_HOSTS
from tracekit.findings import Cause, Column, Confidence, Evidence, Finding, Level, Severity, Status
from tracekit.schema import COLLECTIVES
from tracekit.units import Quantity, Unit, limit

if TYPE_CHECKING:
    from tracekit.store import Run

MAX_FINDINGS, MAX_SHOWN = 4, 32
_NONE = (
    "no group all of whose members were recorded. Record all ranks, with the process groups (torch "
    "2.4 or later writes them)."
)


@dataclass(frozen=True, slots=True)
class Limits:
    """How many calls must differ, and in how many steps."""

    min_calls: int = limit(1, Unit.COUNT, "One call that no peer answers is enough.")
    min_steps: int = limit(
        2, Unit.COUNT, "In a single step a call may have fallen on the other side of its mark."
    )


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for each group whose members differ; else one for the run."""
    if not has_device_events(run):
        return (skipped(DETECTOR, ON_HOSTS),)
    counts = call_counts(run)
    if counts.is_empty():
        return (skipped(DETECTOR, _NONE),)
    compared = counts.with_columns(off=pl.col("n_calls") - _usual())
    of_ranks = (
        compared.group_by("group", "rank")
        .agg(
            least=pl.col("off").abs().min(),
            n_steps=pl.len(),
            off=pl.col("off").mean(),
            n_calls=pl.col("n_calls").mean(),
        )
        .sort("group", "rank")
    )
    wrong = of_ranks.filter(
        (pl.col("least") >= limits.min_calls) & (pl.col("n_steps") >= limits.min_steps)
    )
    shared: dict[str, Any] = {"limit": Quantity(limits.min_calls, Unit.COUNT)}
    if wrong.is_empty():
        return (finding(DETECTOR, Status.CLEAR, measured=Quantity(0, Unit.COUNT), **shared),)
    names = wrong["group"].unique(maintain_order=True).to_list()[:MAX_FINDINGS]
    return tuple(
        _found(of_ranks.filter(group=name), wrong.filter(group=name), shared) for name in names
    )


def _usual() -> pl.Expr:
    """What most members call in a step; of two equally frequent numbers the larger."""
    here = ["group", "step"]
    n = pl.len().over(*here, "n_calls")
    return pl.col("n_calls").filter(n == n.max().over(here)).max().over(here)


def _found(members: pl.DataFrame, wrong: pl.DataFrame, shared: dict[str, Any]) -> Finding:
    group, ranks = wrong["group"][0], tuple(wrong["rank"].to_list())
    own = number(wrong["n_calls"][0])
    peers = own - number(wrong["off"][0])
    verb = "calls" if len(ranks) == 1 else "call"
    return finding(
        DETECTOR,
        Status.FOUND,
        subject=group,
        title=f"Rank{'s' * (len(ranks) > 1)} {rank_list(list(ranks))} {verb} {own:.4g} collectives "
        f"a step in group {group}, peers {peers:.4g}",
        severity=Severity.CRITICAL,
        cause=Cause.MISSING_CALL,
        ranks=ranks,
        groups=(group,),
        measured=Quantity(number(wrong["off"].abs().max()), Unit.COUNT),
        confidence=_confidence(len(ranks), members.height, int(wrong["n_steps"][0])),
        evidence=(_table(members),),
        **shared,
    )


def _confidence(n_wrong: int, n_members: int, n_steps: int) -> Confidence:
    if 2 * n_wrong >= n_members:
        return Confidence(Level.LOW, "as many members call the one number as the other")
    return Confidence(
        Level.MEDIUM,
        f"{n_members - n_wrong} of {n_members} members agree, in all {n_steps} steps; or the "
        "profiler lost the same calls in each",
    )


def _table(members: pl.DataFrame) -> Evidence:
    rows = members.sort(pl.col("off").abs(), "rank", descending=[True, False])
    return Evidence(
        title="Collectives by rank, mean step",
        columns=(
            Column("rank"),
            Column("calls a step", Unit.COUNT),
            Column("more than most members", Unit.COUNT),
        ),
        rows=tuple(rows.select("rank", "n_calls", "off").head(MAX_SHOWN).iter_rows()),
    )


DETECTOR = Detector(
    id="collective-count-mismatch",
    title="Members of a group call unequal numbers of collectives",
    clear="All members of a group call equally many collectives",
    needs=(COLLECTIVES,),
    how="Record whole steps of all ranks with CPU and CUDA activity on.",
    min_ranks=2,
    limits=Limits,
    detect=detect,
)
