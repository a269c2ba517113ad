"""A rank's messages come later than those of its peers, and the receivers wait for them.

What it measures:
    Waits for messages while the device computes nothing, by who caused them, through all links:
    what a sender itself waited for others is theirs. Peers are the same stage of other pipelines,
    else all ranks that exchange messages.

Formula:
    caused = Σ waits whose origin is the rank, in the mean step; own = T − exposed communication of
    the rank. measured = min(caused − its median over peers, own − its median over peers) / T, of
    two peers the smaller: a sender that only waits for a slow link does nothing longer itself.

Threshold:
    Found when measured is at least `max_step_share`. In a single pipeline stages are no peers of
    each other: waiting in turn is its bubble, and `straggler-rank` and `stage-imbalance` compare
    them.

Evidence:
    Who waits for whom, the longest waits first.

What-if saving:
    None here: this says whom the receivers wait for. What it costs, and why the sender is late, is
    said by `straggler-rank`.

Recommendation:
    Look at what the sender does before it sends.

References:
    https://doi.org/10.1016/j.parco.2013.05.005 (root causes of wait states).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.derive.activity import has_device_events
from tracekit.derive.averages import averages, mean_steps
from tracekit.derive.origins import wait_origins
from tracekit.derive.stages import stages
from tracekit.detectors import Detector, finding, number, skipped
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
    Scope,
    Severity,
    Status,
)
from tracekit.schema import COLLECTIVES
from tracekit.units import Quantity, Unit, limit, text

if TYPE_CHECKING:
    from tracekit.store import Run

MAX_FINDINGS, MAX_SHOWN = 4, 32
ADVICE = Recommendation(
    "Look at what this rank does before it sends: its lateness, and what it costs, is told apart "
    "by straggler-rank.",
    Change.CODE,
    ("tracekit explain straggler-rank",),
)
_NONE = (
    "no rank waits for a message of a rank that has a peer: the same stage of another pipeline, or "
    "another rank of its ring. Record all ranks."
)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much longer than for its peers others may wait for a rank."""

    max_step_share: float = limit(
        0.02, Unit.SHARE, "Equal stages of healthy pipelines differ by about a hundredth of a step."
    )


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for each late sender, the worst first; else one for the run."""
    if not has_device_events(run):
        return (skipped(DETECTOR, ON_HOSTS),)
    steps = averages(run).steps
    waits = wait_origins(run).filter(pl.col("step").is_in(list(steps)))
    means, caused = mean_steps(run), _caused(run, waits)
    if means.is_empty() or caused.is_empty():
        return (skipped(DETECTOR, _NONE),)
    step_ns = number(means["dur_ns"].mean())
    shared: dict[str, Any] = {"limit": Quantity(limits.max_step_share, Unit.SHARE)}
    late = caused.filter(pl.col("excess_ns") >= limits.max_step_share * step_ns)
    if late.is_empty():
        most = Quantity(number(caused["excess_ns"].max()) / step_ns, Unit.SHARE)
        return (finding(DETECTOR, Status.CLEAR, measured=most, **shared),)
    pairs = (
        waits.group_by("rank", "origin")
        .agg(dur_ns=pl.col("dur_ns").sum() / max(1, len(steps)))
        .sort("dur_ns", "rank", descending=[True, False])
    )
    return tuple(
        _found(row, pairs, step_ns, shared) for row in late.head(MAX_FINDINGS).iter_rows(named=True)
    )


def _caused(run: Run, waits: pl.DataFrame) -> pl.DataFrame:
    """By how much each rank is later than its peers: `rank`, `excess_ns`, `n_peers`."""
    n_steps = max(1, len(averages(run).steps))
    sums = waits.group_by(rank="origin").agg(caused_ns=pl.col("dur_ns").sum() / n_steps)
    kind = pl.when(pl.col("n_stages") > 1).then("stage")
    exposed = ("exposed_transfer_ns", "exposed_waiting_ns", "unsplit_communication_ns")
    own = (
        mean_steps(run)
        .group_by("rank")
        .agg(own_ns=(pl.col("dur_ns") - pl.sum_horizontal(exposed)).max())
    )
    exchanging = pl.concat([waits["rank"], waits["origin"]]).unique().implode()
    return (
        stages(run)
        .filter(pl.col("rank").is_in(exchanging))
        .join(sums, on="rank", how="left", validate="1:1")
        .join(own, on="rank", validate="1:1")
        .with_columns(pl.col("caused_ns").fill_null(0.0), kind=kind)
        .with_columns(
            excess_ns=pl.min_horizontal(
                pl.col(name) - pl.col(name).quantile(0.5, "lower").over("kind")
                for name in ("caused_ns", "own_ns")
            ),
            n_peers=pl.len().over("kind") - 1,
        )
        .filter(pl.col("n_peers") > 0)
        .select("rank", "n_peers", "excess_ns")
        .sort("excess_ns", "rank", descending=[True, False])
    )


def _found(
    row: dict[str, Any], pairs: pl.DataFrame, step_ns: float, shared: dict[str, Any]
) -> Finding:
    rank = int(row["rank"])
    waiting = pairs.filter(origin=rank)
    most = waiting.row(0, named=True)
    return finding(
        DETECTOR,
        Status.FOUND,
        subject=f"rank {rank}",
        title=f"Messages of rank {rank} come late: rank {most['rank']} waits "
        f"{text(most['dur_ns'], Unit.NS)} a step",
        severity=Severity.INFO,
        cause=Cause.UNKNOWN,
        ranks=(rank,),
        measured=Quantity(row["excess_ns"] / step_ns, Unit.SHARE),
        confidence=Confidence(
            Level.MEDIUM, f"against {row['n_peers']} ranks in the same place; waits are followed"
        ),
        scope=Scope(victims=tuple(sorted(waiting["rank"].to_list()))),
        recommendation=ADVICE,
        evidence=(
            Evidence(
                title="Who waits for whom, mean step",
                columns=(Column("waits"), Column("for rank"), Column("exposed wait", Unit.NS)),
                rows=tuple(pairs.head(MAX_SHOWN).iter_rows()),
            ),
        ),
        **shared,
    )


DETECTOR = Detector(
    id="late-sender",
    title="A rank's messages come late",
    clear="Receivers wait for all senders alike",
    needs=(COLLECTIVES,),
    how="Record whole steps of all ranks with CUDA activity on.",
    min_ranks=3,
    limits=Limits,
    detect=detect,
)
