"""Python collects garbage inside the step, and the device has nothing to run meanwhile.

What it measures:
    Time in which a device is idle while its host collects garbage. Only collections that were
    recorded count: marks of `tracekit.collect`, of `record_python_gc_info`, or frames named `gc`.

Formula:
    Stalls (definitions, section 4) of class garbage-collection. Measured: mean over averaged steps
    of the longest sum of one rank, / T: ranks that collect at different times hold each other up.

Threshold:
    Found when that is at least `min_step_share`.

Evidence:
    Collections by rank; collections by step with the rank that was held up longest.

What-if saving:
    The stalls go. Low: only stalls longer than the same rank's waiting for others.

Recommendation:
    Switch the automatic collector off, and collect on all ranks in the same step.

References:
    https://github.com/pytorch/torchtitan/pull/148, https://arxiv.org/abs/2402.15627 (MegaScale).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.averages import mean_steps
from tracekit.derive.host_kinds import COLLECTION, class_of
from tracekit.derive.savings import saving
from tracekit.derive.stalls import by_rank, removable_ns, stalled
from tracekit.detectors import Detector, finding, number, skipped
from tracekit.detectors._cures import without_host_work
from tracekit.detectors._stalls import ASSUMES, at_fault, ranks_table, shown_of
from tracekit.findings import Cause, Column, Confidence, Evidence, Finding, Level, Status
from tracekit.units import Unit, limit, text

if TYPE_CHECKING:
    from tracekit.store import Run

_NOT_RECORDED = (
    "no collection of garbage is marked in the traces, so nothing tells whether there was none. "
    "Record with tracekit.collect, which marks them."
)


@dataclass(frozen=True, slots=True)
class Limits:
    """When collections are worth a look."""

    min_step_share: float = limit(0.01, Unit.SHARE, "Less than 1 % of a step is noise.")


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for the run."""
    is_collection = pl.col("class") == COLLECTION
    rows = stalled(run, is_collection)
    if rows.is_empty() or not _is_marked(run):
        return (skipped(DETECTOR, _NOT_RECORDED),)
    worst = rows.sort("stall_ns", "rank", "device", descending=[True, False, False]).unique(
        "step", keep="first", maintain_order=True
    )
    share = number(worst["stall_ns"].sum()) / number(worst["dur_ns"].sum())
    ranks = by_rank(rows)
    shown = shown_of(run, share, limits.min_step_share)
    table = ranks_table("Collections of garbage", ranks)
    if share < limits.min_step_share:
        return (finding(DETECTOR, Status.CLEAR, evidence=(table,), **shown),)
    gain = removable_ns(rows)
    a_step_ns = number(worst["stall_ns"].mean())
    shown["confidence"] = Confidence(Level.HIGH, "collections are marked in the traces")
    return (
        finding(
            DETECTOR,
            Status.FOUND,
            title=f"Garbage collection holds the job up for {text(a_step_ns, Unit.NS)} a step",
            cause=Cause.GARBAGE_COLLECTION,
            ranks=at_fault(ranks, min(number(ranks["share"].max()), limits.min_step_share)),
            steps=tuple(worst.filter(pl.col("stall_ns") > 0)["step"].unique().sort()),
            saving=saving(
                gain.low, gain.high, number(rows["dur_ns"].mean()), mean_steps(run).height, ASSUMES
            ),
            evidence=(table, _by_step(worst)),
            why=f"the host collects garbage while its device has nothing to run{_turns(rows)}",
            **shown,
        ),
    )


def _is_marked(run: Run) -> bool:
    """Whether collections are recorded: one is, inside a step or out of it, or a hook marks all."""
    if all(capture.facts is not None for capture in run.manifest.captures):
        return True
    marked = (
        run.scan_all(table).filter(class_of() == COLLECTION).select(pl.len())
        for table in ("annotations", "cpu_ops")
    )
    return any(rows.collect().item() for rows in marked)


def _turns(rows: pl.DataFrame) -> str:
    """How many ranks take turns, for a sentence; empty where most collect in the same steps."""
    held_up = rows.filter(pl.col("stall_ns") > 0)
    n_ranks = held_up["rank"].n_unique()
    n_in_step = held_up.group_by("step").agg(n=pl.col("rank").n_unique())["n"]
    is_in_turn = n_ranks > 1 and 2 * number(n_in_step.median()) <= n_ranks
    return f"; {n_ranks} ranks take turns" if is_in_turn else ""


def _by_step(worst: pl.DataFrame) -> Evidence:
    return Evidence(
        title="The rank held up longest, by step",
        columns=(Column("step"), Column("rank"), Column("held up", Unit.NS)),
        rows=tuple(worst.sort("step").select("step", "rank", "stall_ns").iter_rows()),
    )


DETECTOR = Detector(
    id="garbage-collection",
    title="Python collects garbage inside the step",
    clear="Garbage collection does not hold the devices up",
    needs=(),
    how="Record with tracekit.collect, which marks collections.",
    limits=Limits,
    detect=detect,
    cure=without_host_work(COLLECTION),
    bounded_by="idle-gpu",
)
