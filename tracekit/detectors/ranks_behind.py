"""Ranks have made fewer calls than the others of their communicator, or do not answer any more.

What it measures:
    From answers of NCCL's RAS, which a running or hanging job gives without being touched: how many
    collectives each rank has called in each communicator, and which processes are silent.

Formula:
    behind = the most calls of a member - those of the rank. At fault are ranks that are behind in a
    communicator and first in none of which others are behind (those wait themselves), ranks whose
    process does not answer, and ranks whose communicator has an error or was aborted. measured =
    ranks at fault.

Threshold:
    Found when any rank is at fault. Critical where it is silent or failed, or made no call between
    the last two answers; one answer alone may have met a job in motion: a note.

Evidence:
    How far each rank at fault got in each communicator, against the others.

What-if saving:
    None: a job that stands still has no step.

Recommendation:
    Look at the processes at fault; of one answer alone, ask again.

References:
    https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.call_progress import Progress, call_progress
from tracekit.detectors import Detector, finding, rank_list
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
from tracekit.schema import COMMUNICATOR_COUNTS
from tracekit.units import Quantity, Unit, limit

if TYPE_CHECKING:
    from tracekit.store import Run

MAX_ROWS = 32
ASK_AGAIN = Recommendation(
    "Ask again after a minute, into the same file: who made no call in between stands still.",
    Change.SETTING,
    ("ncclras -v -f json >> ras.json",),
)
GONE = Recommendation(
    "See what became of these processes: their logs, and errors of their devices and hosts.",
    Change.HARDWARE,
    ("py-spy dump --pid PID", "dmesg | grep -i 'xid\\|out of memory'"),
)
STUCK = Recommendation(
    "See where the host of these ranks stands: the others wait for a call that they do not make.",
    Change.CODE,
    ("py-spy dump --pid PID", "export TORCH_FR_BUFFER_SIZE=20000 TORCH_NCCL_DUMP_ON_TIMEOUT=1"),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """How many ranks must be at fault."""

    min_ranks: int = limit(1, Unit.COUNT, "One rank is enough to hold all others up.")


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for the job, with all ranks at fault."""
    seen = call_progress(run)
    gone = tuple(sorted({*seen.silent, *seen.failed}))
    ranks = gone or seen.stuck or seen.behind
    least = Quantity(limits.min_ranks, Unit.COUNT)
    if len(ranks) < limits.min_ranks:
        measured = Quantity(len(ranks), Unit.COUNT)
        return (finding(DETECTOR, Status.CLEAR, measured=measured, limit=least),)
    is_sure = bool(gone or seen.stuck)
    groups = seen.reached.filter(pl.col("rank").is_in(ranks))["communicator"].unique().sort()
    victims = set(seen.reached["rank"].to_list()) - set(ranks)
    return (
        finding(
            DETECTOR,
            Status.FOUND,
            title=_title(seen, ranks),
            severity=Severity.CRITICAL if is_sure else Severity.INFO,
            cause=Cause.PEER_FAILURE if gone else Cause.MISSING_CALL,
            why=_why(seen),
            ranks=ranks,
            groups=tuple(groups.to_list()[:8]),
            measured=Quantity(len(ranks), Unit.COUNT),
            limit=least,
            confidence=_confidence(seen, is_sure=is_sure),
            scope=Scope(victims=tuple(sorted(victims))),
            recommendation=GONE if gone else STUCK if seen.stuck else ASK_AGAIN,
            evidence=(_reached(seen, ranks),),
        ),
    )


def _title(seen: Progress, ranks: tuple[int, ...]) -> str:
    one = len(ranks) == 1
    who = f"{'Rank' if one else 'Ranks'} {rank_list(list(ranks))}"
    if seen.silent:
        return f"{who} {'does' if one else 'do'} not answer NCCL any more"
    if seen.failed:
        return f"{who} {'reports' if one else 'report'} an error of NCCL"
    if seen.stuck:
        return f"{who} {'calls' if one else 'call'} nothing any more, and the others wait"
    return f"{who} {'has' if one else 'have'} made fewer calls than the others"


def _why(seen: Progress) -> str:
    rows = seen.reached.filter(pl.col("n_calls") < pl.col("most_calls"))
    if rows.is_empty():
        return "the others of their communicators have answered"
    row = rows.sort(pl.col("most_calls") - pl.col("n_calls"), descending=True).row(0, named=True)
    return (
        f"rank {row['rank']} made {row['n_calls']:,} of {row['most_calls']:,} calls of "
        f"communicator {row['communicator']}"
    )


def _confidence(seen: Progress, *, is_sure: bool) -> Confidence:
    if not is_sure:
        return Confidence(Level.LOW, "one answer may have met the job in motion")
    if seen.silent or seen.failed:
        return Confidence(Level.HIGH, "NCCL itself says so")
    return Confidence(Level.MEDIUM, "no call between the last two answers, while others are ahead")


def _reached(seen: Progress, ranks: tuple[int, ...]) -> Evidence:
    rows = seen.reached.filter(pl.col("rank").is_in(ranks)).head(MAX_ROWS)
    return Evidence(
        title="How far the ranks at fault got",
        columns=(
            Column("rank"),
            Column("communicator"),
            Column("members", Unit.COUNT),
            Column("calls", Unit.COUNT),
            Column("most calls of a member", Unit.COUNT),
            Column("taken for dead"),
        ),
        rows=tuple(
            rows.select(
                "rank", "communicator", "n_members", "n_calls", "most_calls", "is_dead"
            ).iter_rows()
        ),
    )


DETECTOR = Detector(
    id="ranks-behind",
    title="Ranks made fewer calls than the others of their communicator",
    clear="All ranks have made equally many calls",
    needs=(COMMUNICATOR_COUNTS,),
    how="NCCL 2.28.7 or later answers while the job runs or hangs: ncclras -v -f json >> ras.json, "
    "some times over.",
    limits=Limits,
    detect=detect,
)
