"""One rank enters collectives late, and all others wait for it.

What it measures:
    Who enters each collective after the others, how long the others wait for it where nothing hides
    the waiting, and in what the late rank's step differs from its peers'.

Formula:
    In one instance k with durations d_r: wait_r = d_r − min d (no member can leave before all have
    entered), late_r = median d − d_r. r is late in k if late_r exceeds the instance's error (the
    spread of its ends, constant clock offsets removed) and half of the greatest lateness in k.
    measured = Σ_k exposed wait of the median victim in instances in which r is late / (steps · T).
    caused share = exposed waiting that r caused / exposed waiting that all late ranks caused.

Threshold:
    Named when measured is at least `min_step_share`, the caused share at least `min_caused_share`
    (and 1.5 / ranks), r is late in at least `min_instances` instances and, over them, later than
    their error, and it leads in at least `min_steps_share` of the averaged steps. Where ranks take
    turns, one finding without a rank says so.

Evidence:
    Lateness and waiting by rank; the late rank's mean step against the median peer's.

What-if saving:
    Low: in each instance all others enter with the next latest rank, less the error. High: the
    median victim's exposed wait vanishes. An upper bound until the replay confirms it.

Recommendation:
    Follows from what differs: kernels slower (clocks, temperature), more kernels (balance the
    work), the host (input pipeline, allocator, synchronisation, pauses).

References:
    https://arxiv.org/abs/2505.05713 (stragglers in large model training),
    https://arxiv.org/abs/2402.15627 (MegaScale).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.averages import averages, breakdowns, mean_steps
from tracekit.derive.lateness import late_calls
from tracekit.derive.savings import saving
from tracekit.derive.waits import waits
from tracekit.derive.why_late import cause_of_lateness, differences_from_peers
from tracekit.detectors import Detector, finding, skipped
from tracekit.findings import (
    Cause,
    Column,
    Confidence,
    Evidence,
    Finding,
    Level,
    Scope,
    Status,
)
from tracekit.schema import COLLECTIVES
from tracekit.units import Quantity, Unit, limit, text

if TYPE_CHECKING:
    from tracekit.store import Run

ASSUMES = (
    "the late rank enters with the others; upper bound: what lies behind the collective is taken to "
    "move up with it"
)


@dataclass(frozen=True, slots=True)
class Limits:
    """When a late rank is named."""

    min_step_share: float = limit(
        0.02, Unit.SHARE, "Waits of 1 % of a step come and go on healthy runs."
    )
    min_caused_share: float = limit(
        0.25, Unit.SHARE, "Below a quarter of the waiting another rank matters as much."
    )
    min_instances: int = limit(3, Unit.COUNT, "Being late once or twice is chance.")
    min_steps_share: float = limit(
        0.6, Unit.SHARE, "A rank that leads in half of the steps takes turns."
    )
    min_rotating_share: float = limit(
        0.05, Unit.SHARE, "Turns that cost less are the jitter of a healthy run."
    )


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding per late rank, or one that ranks take turns, or a clear one."""
    rows = breakdowns(run)
    chosen = averages(run, rows)
    means = mean_steps(rows)
    step_ns = float(means["dur_ns"].mean() or 0)  # type: ignore[arg-type]
    usable = waits(run).filter(pl.col("wait_ns").is_not_null()).collect()
    if usable.is_empty() or step_ns <= 0:
        return (skipped(DETECTOR, _why_skipped(run)),)
    late = late_calls(run).filter(pl.col("step").is_in(list(chosen.steps)))
    ranks = _by_rank(late, len(chosen.steps), step_ns, limits)
    needed = max(limits.min_caused_share, 1.5 / usable["rank"].n_unique())
    culprits = ranks.filter(
        (pl.col("measured") >= limits.min_step_share)
        & (pl.col("caused_share") >= needed)
        & (pl.col("n_late") >= limits.min_instances)
        & (pl.col("late_ns") > pl.col("error_ns"))
        & (pl.col("leads_share") >= limits.min_steps_share)
    )
    seen = _evidence(usable, ranks)
    if culprits.height:
        return tuple(
            _finding(run, row, late, usable, seen, step_ns, means.height, limits)
            for row in culprits.iter_rows(named=True)
        )
    return (_without_culprit(run, ranks, seen, step_ns, means.height, limits),)


def _by_rank(late: pl.DataFrame, n_steps: int, step_ns: float, limits: Limits) -> pl.DataFrame:
    """Lateness of each rank, most caused waiting first."""
    n_steps = max(n_steps, 1)
    caused = pl.col("caused_ns").sum()
    leads = (
        late.group_by("step", "rank")
        .agg(pl.col("caused_ns").sum())
        .with_columns(share=pl.col("caused_ns") / pl.col("caused_ns").sum().over("step"))
        .filter(pl.col("share") >= limits.min_caused_share)
        .group_by("rank")
        .agg(leads_share=pl.len() / n_steps)
    )
    return (
        late.group_by("rank")
        .agg(
            pl.col("late_ns", "error_ns", "caused_ns", "victim_ns", "gain_ns").sum(),
            n_late=pl.len(),
            group=pl.col("group").mode().first(),
        )
        .join(leads, on="rank", how="left", validate="1:1")
        .with_columns(
            leads_share=pl.col("leads_share").fill_null(0.0),
            caused_share=pl.col("caused_ns") / caused,
            measured=pl.col("victim_ns") / n_steps / step_ns,
            low_ns=(pl.col("gain_ns") - pl.col("error_ns")) / n_steps,
            high_ns=pl.col("victim_ns") / n_steps,
        )
        .fill_nan(0.0)
        .sort("caused_ns", "rank", descending=[True, False])
    )


def _finding(
    run: Run,
    row: dict[str, float],
    late: pl.DataFrame,
    usable: pl.DataFrame,
    seen: Evidence,
    step_ns: float,
    n_gpus: int,
    limits: Limits,
) -> Finding:
    rank = int(row["rank"])
    parts = differences_from_peers(run).filter(pl.col("rank") == rank)
    cause, reason = _cause(parts, row["high_ns"])
    own = late.filter(pl.col("rank") == rank)
    victims = usable.join(own.select("instance"), on="instance", how="semi")["rank"].unique()
    return finding(
        DETECTOR,
        Status.FOUND,
        subject=f"rank {rank}",
        title=f"Rank {rank} makes the others wait {text(row['high_ns'], Unit.NS)} a step",
        cause=cause,
        ranks=(rank,),
        groups=(str(row["group"]),),
        steps=tuple(sorted(own["step"].drop_nulls().unique().to_list())),
        measured=Quantity(row["measured"], Unit.SHARE),
        limit=Quantity(limits.min_step_share, Unit.SHARE),
        confidence=_confidence(run, int(row["n_late"]), row["error_ns"] / row["late_ns"], cause),
        saving=saving(row["low_ns"], row["high_ns"], step_ns, n_gpus, ASSUMES),
        evidence=(seen, _differences(parts)),
        scope=Scope(
            victims=tuple(sorted(set(victims.to_list()) - {rank})),
            start_ns=_integer(own["start_ns"].min()),
            end_ns=_integer(own["start_ns"].max()),
        ),
        why=reason,
    )


def _cause(parts: pl.DataFrame, high_ns: float) -> tuple[Cause, str]:
    """The part of the late rank's step that exceeds its peers' most, where it explains the waiting."""
    if parts.is_empty() or parts["extra_ns"][0] < 0.25 * high_ns:
        return Cause.UNKNOWN, "no part of its step is long enough to explain the lateness"
    part, extra_ns = str(parts["part"][0]), float(parts["extra_ns"][0])
    return cause_of_lateness(
        part
    ), f"{part}: {text(extra_ns, Unit.NS)} a step more than the median peer"


def _confidence(run: Run, n_late: int, error_share: float, cause: Cause) -> Confidence:
    seen = f"late in {n_late} collectives; their error is {text(error_share, Unit.SHARE)} of the lateness"
    if run.manifest.missing_ranks:
        return Confidence(
            Level.LOW, f"{seen}; ranks are missing, and one of them may be later still"
        )
    if n_late < 10 or error_share > 0.3:
        return Confidence(Level.LOW, seen)
    more = "; what it did instead is not recorded" if cause is Cause.UNKNOWN else ""
    return Confidence(Level.MEDIUM, f"{seen}; clocks are not aligned{more}")


def _without_culprit(
    run: Run, ranks: pl.DataFrame, seen: Evidence, step_ns: float, n_gpus: int, limits: Limits
) -> Finding:
    """Clear, or ranks that take turns at being late."""
    total = float(ranks["measured"].sum())
    low_ns = float(ranks["low_ns"].clip(0).sum())
    if (
        ranks.height > 1
        and total >= limits.min_rotating_share
        and low_ns > 0
        and len(run.ranks) > 2
    ):
        high_ns = float(ranks["high_ns"].sum())
        return finding(
            DETECTOR,
            Status.FOUND,
            subject="rotating",
            title="Ranks take turns at making the others wait",
            cause=Cause.UNKNOWN,
            ranks=tuple(sorted(ranks["rank"].to_list())),
            measured=Quantity(total, Unit.SHARE),
            limit=Quantity(limits.min_rotating_share, Unit.SHARE),
            confidence=Confidence(Level.LOW, "no rank leads in most steps"),
            saving=saving(low_ns, high_ns, step_ns, n_gpus, ASSUMES),
            evidence=(seen,),
        )
    top = float(ranks["measured"].max() or 0) if ranks.height else 0.0  # type: ignore[arg-type]
    return finding(
        DETECTOR,
        Status.CLEAR,
        measured=Quantity(top, Unit.SHARE),
        limit=Quantity(limits.min_step_share, Unit.SHARE),
        confidence=Confidence(Level.MEDIUM, "ranks compared without aligned clocks"),
        evidence=(seen,),
    )


def _why_skipped(run: Run) -> str:
    if len(run.ranks) == 1:
        return "one rank: nobody to compare it with. Record all ranks of the job, or some of each group."
    return (
        "no collective could be matched over ranks that holds its members until all have entered. "
        "Record whole steps of ranks of one group; a torch with collective metadata helps."
    )


def _evidence(usable: pl.DataFrame, ranks: pl.DataFrame) -> Evidence:
    table = (
        usable.group_by("rank")
        .agg(n_calls=pl.len(), wait_ns=pl.col("wait_ns").sum())
        .join(ranks.select("rank", "n_late", "late_ns", "caused_share"), on="rank", how="left")
        .with_columns(pl.col("n_late", "late_ns", "caused_share").fill_null(0))
        .sort("caused_share", "rank", descending=[True, False])
        .head(16)
    )
    return Evidence(
        title="Who waited, who was late",
        columns=(
            Column("rank"),
            Column("collectives compared", Unit.COUNT),
            Column("late in", Unit.COUNT),
            Column("lateness, sum", Unit.NS),
            Column("own waiting, sum", Unit.NS),
            Column("share of the waiting it caused", Unit.SHARE),
        ),
        rows=tuple(
            table.select(
                "rank", "n_calls", "n_late", "late_ns", "wait_ns", "caused_share"
            ).iter_rows()
        ),
    )


def _differences(parts: pl.DataFrame) -> Evidence:
    return Evidence(
        title="Its mean step against the median peer's",
        columns=(
            Column("part"),
            Column("this rank", Unit.NS),
            Column("median peer", Unit.NS),
            Column("more than the peer", Unit.NS),
        ),
        rows=tuple(parts.select("part", "own_ns", "peer_ns", "extra_ns").iter_rows()),
    )


def _integer(value: object) -> int | None:
    return int(value) if isinstance(value, int) else None


DETECTOR = Detector(
    id="straggler-rank",
    title="One rank makes the others wait",
    clear="Ranks enter collectives together",
    needs=(COLLECTIVES,),
    how="Record whole steps of all ranks with their communication kernels.",
    limits=Limits,
    detect=detect,
)
