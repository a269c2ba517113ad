"""One rank enters collectives late, and all others wait for it.

What it measures:
    Who enters each collective after the others, how long the others wait for it where nothing hides
    the waiting, and in what the late rank's step differs from its peers'.

Formula:
    In one instance k with durations d_r: wait_r = d_r − min d (no member can leave before all have
    entered), late_r = median d − d_r. r is late in k if late_r exceeds the instance's error (the
    spread of its ends, constant clock offsets removed) and half of the greatest lateness in k.
    Ranks that share most of the instances in which they are late are one culprit.
    measured = Σ_k exposed wait of the median victim in instances in which r is late / (steps · T).
    caused share = exposed waiting that r caused / exposed waiting that all late ranks caused.
    Of pipeline operations (no collective recorded): the slowest 3 % of the workers, where M_W, the
    share of the slowdown that goes with them in a replay, is at least a half; measured = that / T.

Threshold:
    Named when measured is at least `min_step_share`, the caused share at least `min_caused_share`
    (and 1.5 / ranks), r is late in at least `min_instances` instances and, over them, later than
    their error, and it leads in at least `min_steps_share` of the averaged steps or comes back at
    every k-th. A rank that waited elsewhere, messages included, longer than its peers by
    `max_inherited_share` of its lateness inherited it and is not named; neither is one that was
    so much late already where it last met its group, or held up in communication since.
    In a pipeline each wait for a message is followed to its origin: what a rank caused while it
    waited itself is caused by whom it waited for. Named when a rank causes `min_step_share` of a
    step (`min_host_pipeline_share` without a device) more than the median stage, and most in
    `min_steps_share` of the steps.
    Where ranks stall the others by turns (each time one alone is late, by 1 % of a step or more),
    in at least three steps and `min_steps_share` of them, and that costs `min_rotating_share` of a
    step, one finding says so; smaller waits that spread over all ranks are jitter, of nobody.
    Waiting beyond the limit that is neither, as of a pause that came once, is a note.
    Why: from the last point at which the late rank met its group to its arrival, its device
    timeline against the median peer's; the differences sum to the lateness. Attention that takes
    longer while matrix products do not is longer sequences, grouped products alone are experts.

Evidence:
    Lateness and waiting by rank, by both estimators; lateness by step (in every step, in every
    k-th, growing); the parts of the lateness; compute by class of work.

What-if saving:
    Low: in each instance all others enter with the next latest rank, less the error, and of the
    victims the one that waits least says how much; of work that one has more, each gets its share.
    High: the median victim's exposed wait vanishes,
    and transfers that only the late rank could hide. An upper bound until the replay confirms it.

Recommendation:
    Follows from what differs: kernels slower (clocks, temperature), more kernels (balance the
    work), the host (input pipeline, allocator, synchronisation, pauses).

References:
    https://arxiv.org/abs/2505.05713 (stragglers in large model training),
    https://arxiv.org/abs/2402.15627 (MegaScale).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.derive.activity import has_device_events
from tracekit.derive.averages import averages, mean_steps
from tracekit.derive.culprits import by_instance, inherited_ns, ranked_culprits, with_culprit
from tracekit.derive.lateness import compared_calls, late_calls
from tracekit.derive.patterns import Course
from tracekit.derive.savings import saving
from tracekit.derive.why_late import was_held_up
from tracekit.detectors import Detector, finding, number, rank_list, skipped
from tracekit.detectors._cures import as_peers
from tracekit.detectors._operations import late_worker
from tracekit.detectors._straggler_causes import explained
from tracekit.detectors._straggler_confidence import how_sure
from tracekit.detectors._straggler_pipeline import late_in_pipeline
from tracekit.detectors._straggler_seen import Seen
from tracekit.detectors._straggler_tables import by_rank, by_step, parts_of_lateness, work_by_class
from tracekit.detectors._straggler_turns import in_main_group, in_turns
from tracekit.detectors._straggler_unnamed import clear, even_pipeline, spread, too_few, unseen
from tracekit.findings import Finding, Published, Scope, Status
from tracekit.schema import COLLECTIVES, OPS
from tracekit.units import Quantity, Unit, limit, text

if TYPE_CHECKING:
    from tracekit.derive.why_late import WhyLate
    from tracekit.store import Run

_NOT_COMPARED = (
    "no collective could be matched over ranks that holds its members until all have entered. "
    "Record whole steps of ranks of one group; a torch with collective metadata helps."
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
    max_inherited_share: float = limit(
        0.5, Unit.SHARE, "Who waited elsewhere for most of its lateness is a victim, not a cause."
    )
    min_host_pipeline_share: float = limit(
        0.1, Unit.SHARE, "Without a device, stages share processors with each other."
    )
    min_rotating_share: float = limit(
        0.05, Unit.SHARE, "Turns that cost less are the jitter of a healthy run."
    )
    max_unseen_share: float = limit(
        0.1, Unit.SHARE, "Beyond it a late rank may hide in calls that are not compared."
    )


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding per culprit, or one that ranks take turns, or a clear one."""
    if run.n_rows(OPS.name):
        return (late_worker(DETECTOR, run, limits.min_step_share),)
    steps = averages(run).steps
    usable = compared_calls(run)
    means = mean_steps(run)
    in_pipeline = _in_pipeline(run, limits)
    if usable.is_empty() or means.is_empty():
        even = even_pipeline(DETECTOR, run, limits.min_step_share)
        return (in_pipeline or even or skipped(DETECTOR, _NOT_COMPARED),)
    late = with_culprit(late_calls(run).filter(pl.col("step").is_in(list(steps))))
    seen = Seen(run, late, by_instance(late), usable, means, steps)
    found = ranked_culprits(
        late,
        seen.calls,
        usable.select("rank", "group"),
        n_steps=seen.n_steps,
        min_lead_share=limits.min_caused_share,
    ).with_columns(measured=pl.col("high_ns").clip(0, seen.waiting_ns) / seen.step_ns)
    needed = max(limits.min_caused_share, 1.5 / usable["rank"].n_unique())
    likely = found.filter(
        (pl.col("measured") >= limits.min_step_share)
        & (pl.col("caused_share") >= needed)
        & (pl.col("late_ns") > pl.col("error_ns"))
    )
    comes_back = [seen.course(culprit).course is Course.PERIODIC for culprit in likely["culprit"]]
    likely = likely.filter(
        (pl.col("leads_share") >= limits.min_steps_share) | pl.Series(comes_back, dtype=pl.Boolean)
    )
    named = likely.filter(pl.col("n_late") >= limits.min_instances)
    at_fault = [
        each for row in named.iter_rows(named=True) if (each := _at_fault(seen, row, limits))
    ]
    if at_fault:
        return tuple(at_fault)
    return (
        in_pipeline
        or _in_turns(seen, limits)
        or too_few(DETECTOR, likely, limits.min_instances)
        or unseen(DETECTOR, seen, limits.max_unseen_share)
        or spread(DETECTOR, seen, found, limits.min_step_share)
        or clear(DETECTOR, seen, found, limits.min_step_share),
    )


def _without_inherited(seen: Seen, row: dict[str, Any], limits: Limits) -> list[int]:
    """Ranks of a culprit whose lateness is their own, and no waiting for a peer of another group.

    One delay shows in every bucket of a backward pass: of a step, only the latest arrival counts.
    """
    own = seen.calls.filter(pl.col("culprit") == row["culprit"])
    n_steps = own["step"].n_unique()
    unsplit = seen.means.group_by("rank").agg(
        unsplit_ns=(pl.col("unsplit_communication_ns").sum() * n_steps).round().cast(pl.Int64)
    )
    waited_ns = inherited_ns(seen.usable, unsplit, own, row["ranks"], str(row["group"]))
    late_ns = own.group_by("step").agg(pl.col("late_ns").max())["late_ns"].sum()
    most_ns = limits.max_inherited_share * float(late_ns)
    return [rank for rank in row["ranks"] if waited_ns[rank] < most_ns]


def _uncovered_ns(seen: Seen, ranks: list[int]) -> float:
    """Transfers a step that lie bare on the others and under compute on the late ranks.

    While the others wait, what they could have hidden later transfers under runs out.
    """
    transfer_ns, is_late = pl.col("exposed_transfer_ns"), pl.col("rank").is_in(ranks)
    medians = seen.means.select(
        others=transfer_ns.filter(~is_late).median(), own=transfer_ns.filter(is_late).median()
    )
    return max(number(medians["others"][0]) - number(medians["own"][0]), 0.0)


def _at_fault(seen: Seen, row: dict[str, Any], limits: Limits) -> Finding | None:
    """The finding about a culprit; None where all of its lateness is inherited."""
    own = seen.late.filter(pl.col("culprit") == row["culprit"])
    ranks = _without_inherited(seen, row, limits)
    own = in_main_group(own.filter(pl.col("rank").is_in(ranks)))
    why = seen.why(own) if own.height else None
    if why is None or was_held_up(why, limits.max_inherited_share):
        return None
    return _found(seen, {**row, "ranks": ranks, "group": own["group"][0]}, why, limits)


def _found(seen: Seen, row: dict[str, Any], why: WhyLate, limits: Limits) -> Finding:
    ranks: list[int] = row["ranks"]
    wait_ns = min(row["high_ns"], seen.waiting_ns)
    high_ns = wait_ns + _uncovered_ns(seen, ranks)
    cause, reason = explained(seen.run, why)
    low_ns, assumes = seen.shared(row["low_ns"], cause, str(row["group"]), len(ranks))
    course = seen.course(int(row["culprit"]))
    own = seen.calls.filter(pl.col("culprit") == row["culprit"])
    late_in = seen.usable.join(own.select("instance"), on="instance", how="semi")
    who = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {rank_list(ranks)}"
    makes = "makes" if len(ranks) == 1 else "make"
    return finding(
        DETECTOR,
        Status.FOUND,
        subject=who,
        title=f"{who.capitalize()} {makes} the others wait {text(wait_ns, Unit.NS)} a step",
        cause=cause,
        ranks=tuple(ranks),
        groups=(str(row["group"]),),
        steps=tuple(own["step"].unique().sort()),
        measured=Quantity(row["measured"], Unit.SHARE),
        limit=Quantity(limits.min_step_share, Unit.SHARE),
        confidence=how_sure(
            seen,
            late_in.filter(pl.col("rank").is_in(ranks)),
            int(row["n_late"]),
            row["error_ns"] / row["late_ns"],
            cause,
        ),
        saving=saving(low_ns, high_ns, seen.step_ns, seen.means.height, assumes),
        evidence=(
            by_rank(seen.usable, seen.late),
            parts_of_lateness(why),
            by_step(own, seen.steps),
            *work_by_class(why),
        ),
        scope=Scope(
            victims=tuple(sorted(set(late_in["rank"]) - set(ranks))),
            start_ns=own["start_ns"][0],
            end_ns=own["start_ns"][-1],
        ),
        why=f"{reason}; {course.words}",
    )


def _in_pipeline(run: Run, limits: Limits) -> Finding | None:
    return late_in_pipeline(
        DETECTOR,
        run,
        min_step_share=limits.min_step_share
        if has_device_events(run)
        else limits.min_host_pipeline_share,
        min_steps_share=limits.min_steps_share,
    )


def _in_turns(seen: Seen, limits: Limits) -> Finding | None:
    return in_turns(
        DETECTOR,
        seen,
        min_step_share=limits.min_rotating_share,
        min_steps_share=limits.min_steps_share,
        max_inherited_share=limits.max_inherited_share,
    )


DETECTOR = Detector(
    id="straggler-rank",
    title="One rank makes the others wait",
    clear="Ranks enter collectives together",
    needs=(COLLECTIVES,),
    instead=OPS,
    how="Record whole steps of all ranks with their communication kernels.",
    min_ranks=2,
    limits=Limits,
    detect=detect,
    cure=as_peers,
    published=(Published(22, "MegaScale", "2402.15627"),),
)
