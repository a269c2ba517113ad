"""Hosts pause now and then, outside of any operator, another rank each time.

What it measures:
    Time in which a device is idle because its host launched nothing for 10 ms or longer and no
    operator, call or annotation says what it did.

Formula:
    A pause is a stall (definitions, section 4) of class host-other whose host part is at least
    `min_pause_ns`. Measured: mean over averaged steps of the longest sum of one rank, / T.

Threshold:
    Found when that is at least `min_step_share`, there are at least `min_pauses` pauses on at least
    two ranks, and no rank holds more than `max_rank_share` of them: a rank that pauses alone is
    late, and `straggler-rank` names it; ranks that pause together in every step are idle
    (`idle-gpu`).

Evidence:
    Every pause: step, rank, length, and the call before it; pauses by rank.

What-if saving:
    The pauses go. Low: only pauses longer than the same rank's waiting for others.

Recommendation:
    Garbage collection of Python is likely: confirm it, then collect on all ranks in the same step.

References:
    https://github.com/pytorch/torchtitan/pull/148, https://arxiv.org/abs/2402.15627 (MegaScale:
    launch skew from irregular garbage collection).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.activity import has_device_events
from tracekit.derive.averages import averages, breakdowns, mean_steps
from tracekit.derive.host_kinds import HOST_OTHER
from tracekit.derive.savings import saving
from tracekit.derive.stalls import all_stalls, by_rank, removable_ns, stalled
from tracekit.detectors import Detector, finding, number, skipped
from tracekit.detectors._cures import as_peers
from tracekit.detectors._stalls import ASSUMES, NOTHING, not_found, ranks_table, shown_of
from tracekit.findings import Cause, Column, Confidence, Evidence, Finding, Level, Status
from tracekit.units import Unit, limit, text

if TYPE_CHECKING:
    from tracekit.store import Run

N_SHOWN = 32


@dataclass(frozen=True, slots=True)
class Limits:
    """When pauses are worth a look."""

    min_pause_ns: float = limit(
        10_000_000, Unit.NS, "Collections of a large heap take 10 ms to seconds; jitter does not."
    )
    min_step_share: float = limit(0.01, Unit.SHARE, "Less than 1 % of a step is noise.")
    min_pauses: int = limit(2, Unit.COUNT, "One pause is an accident.")
    max_rank_share: float = limit(
        0.7, Unit.SHARE, "A rank that holds most pauses has a fault of its own."
    )


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for the run."""
    if not has_device_events(run):
        why = "without a device, a training thread that has no processor looks paused"
        return (skipped(DETECTOR, f"{why}. {DETECTOR.how}"),)
    is_pause = (pl.col("class") == HOST_OTHER) & (pl.col("host_ns") >= limits.min_pause_ns)
    rows = stalled(run, is_pause)
    if rows.is_empty():
        return (skipped(DETECTOR, f"{NOTHING}. {DETECTOR.how}"),)
    in_steps = pl.col("step").is_in(list(averages(run).steps))
    pauses = _of_hosts(
        all_stalls(run, is_pause & in_steps).join(
            breakdowns(run).filter("is_averaged").select("rank", "device", "step"),
            on=["rank", "device", "step"],
            how="semi",
        )
    )
    in_step = rows.group_by("step").agg(pl.col("stall_ns").max(), pl.col("dur_ns").mean())
    share = number(in_step["stall_ns"].sum()) / number(in_step["dur_ns"].sum())
    shown = shown_of(run, min(share, 1.0), limits.min_step_share)
    table = ranks_table("Pauses", by_rank(rows))
    counts = pauses.group_by("rank").agg(n=pl.len()).sort("rank")
    is_irregular = (
        pauses.height >= limits.min_pauses
        and counts.height > 1
        and number(counts["n"].max()) <= limits.max_rank_share * pauses.height
        and not _is_together(pauses, len(run.ranks))
    )
    if share < limits.min_step_share or not is_irregular:
        return not_found(DETECTOR, run, shown, table)
    gain = removable_ns(rows)
    longest_ns = number(pauses["stall_ns"].max())
    shown["confidence"] = Confidence(
        Level.MEDIUM if pauses.height > limits.min_pauses else Level.LOW,
        f"{pauses.height} pauses on {counts.height} ranks; nothing recorded says what they are",
    )
    return (
        finding(
            DETECTOR,
            Status.FOUND,
            title=f"Hosts pause for up to {text(longest_ns, Unit.NS)}, another rank each time",
            cause=Cause.HOST_PAUSE,
            ranks=tuple(counts["rank"]),
            steps=tuple(pauses["step"].unique().sort()),
            saving=saving(
                gain.low, gain.high, number(rows["dur_ns"].mean()), mean_steps(run).height, ASSUMES
            ),
            evidence=(_pauses(pauses), table),
            why="the launching threads of these ranks are in no operator, call or annotation; "
            "garbage collection of Python is likely",
            **shown,
        ),
    )


def _of_hosts(pauses: pl.DataFrame) -> pl.DataFrame:
    """Pauses of which each is seen once: one that holds several devices of a rank up is one."""
    ends_ns = pl.col("start_ns") + pl.col("stall_ns")
    ended_ns = ends_ns.cum_max().shift(1).over("rank")
    return pauses.sort("rank", "start_ns", "device").filter(
        (pl.col("start_ns") >= ended_ns).fill_null(value=True)
    )


def _is_together(pauses: pl.DataFrame, n_ranks: int) -> bool:
    """Whether all ranks pause in the same steps: that is what the job does there."""
    n_in_step = pauses.group_by("step").agg(n=pl.col("rank").n_unique())["n"]
    return 2 * number(n_in_step.median()) > n_ranks > 1


def _pauses(pauses: pl.DataFrame) -> Evidence:
    rows = pauses.sort("stall_ns", "rank", "start_ns", descending=[True, False, False])
    return Evidence(
        title="Pauses, the longest first",
        columns=(
            Column("step"),
            Column("rank"),
            Column("paused", Unit.NS),
            Column("call before or around it"),
        ),
        rows=tuple(
            rows.head(N_SHOWN)
            .select("step", "rank", "stall_ns", pl.col("detail").str.slice(0, 120))
            .iter_rows()
        ),
    )


DETECTOR = Detector(
    id="host-pause",
    title="Hosts pause, another rank each time",
    clear="Hosts do not pause in turn",
    needs=(),
    how="Record with ProfilerActivity.CUDA and ProfilerActivity.CPU.",
    min_ranks=2,
    limits=Limits,
    detect=detect,
    cure=as_peers,
    bounded_by="idle-gpu",
)
