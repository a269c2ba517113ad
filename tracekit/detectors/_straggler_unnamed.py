"""What is said of stragglers where nobody is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.averages import mean_steps
from tracekit.derive.stalls import messages
from tracekit.detectors import Detector, finding, number, rank_list, skipped
from tracekit.detectors._straggler_pipeline import caused_table, excess_waiting
from tracekit.detectors._straggler_tables import by_rank
from tracekit.findings import Cause, Confidence, Finding, Level, Status
from tracekit.units import Quantity, Unit, text

if TYPE_CHECKING:
    from tracekit.detectors._straggler_seen import Seen
    from tracekit.store import Run


def even_pipeline(detector: Detector, run: Run, min_step_share: float) -> Finding | None:
    """Clear, where nothing but messages tells who was late; None where nothing tells at all."""
    caused = excess_waiting(run)
    if caused.is_empty() or number(caused["caused_ns"].max()) <= 0:
        return None
    step_ns = number(mean_steps(run)["dur_ns"].mean())
    share = min(max(number(caused["excess_ns"].max()), 0.0) / step_ns, 1.0)
    return finding(
        detector,
        Status.CLEAR,
        measured=Quantity(share, Unit.SHARE),
        limit=Quantity(min_step_share, Unit.SHARE),
        confidence=Confidence(Level.MEDIUM, "messages of a pipeline, each followed to its origin"),
        evidence=(caused_table(caused),),
    )


def too_few(detector: Detector, likely: pl.DataFrame, min_instances: int) -> Finding | None:
    """Skipped, where a rank is late in all there is to see, and that is hardly anything."""
    rare = likely.filter(pl.col("n_late") < min_instances)
    if rare.is_empty():
        return None
    ranks = rare["ranks"].explode().unique().sort().to_list()
    n_late = number(rare["n_late"].max())
    why = (
        f"rank {rank_list(ranks)} is late in {n_late:.0f} of the "
        f"collectives that can be compared, and fewer than {min_instances} may be "
        "chance. Record more steps."
    )
    return skipped(detector, why)


def unseen(detector: Detector, seen: Seen, max_unseen_share: float) -> Finding | None:
    """Skipped, where much of the step is communication in which nothing tells who was late."""
    unsplit_ns = pl.col("unsplit_communication_ns") * (1 - pl.col("message_share"))
    means = seen.means.join(messages(seen.run), on="rank", validate="m:1")
    share = number(means.select(unsplit_ns.mean()).item()) / seen.step_ns
    if share < max_unseen_share:
        return None
    why = (
        f"{text(share, Unit.SHARE)} of the mean step is exposed communication whose waiting cannot "
        "be told from its transfer: calls without metadata or without all their members; those "
        "that can be compared show nobody late. Record all ranks, with a torch that writes "
        "collective metadata."
    )
    return skipped(detector, why)


def spread(
    detector: Detector, seen: Seen, found: pl.DataFrame, min_step_share: float
) -> Finding | None:
    """A note, where ranks wait for each other beyond the limit, and none of them stands out.

    Two ranks that are late by turns, a pause that came once, the jitter of a busy host: real, and
    no reason to look at one rank.
    """
    top = number(found["measured"].max()) if found.height else 0.0
    if top < min_step_share:
        return None
    waiting_ns = number(seen.means["exposed_waiting_ns"].mean())
    return finding(
        detector,
        Status.FOUND,
        subject="spread",
        title=f"Ranks wait for each other for {text(waiting_ns, Unit.NS)} a step, and none "
        "stands out",
        cause=Cause.UNKNOWN,
        steps=seen.steps,
        measured=Quantity(top, Unit.SHARE),
        limit=Quantity(min_step_share, Unit.SHARE),
        confidence=Confidence(Level.LOW, "late by turns, once, or by no more than their error"),
        evidence=(by_rank(seen.usable, seen.late),),
        why="no rank is late in enough of the steps to be named; record more steps to tell a pause "
        "that came once from one that comes back",
    )


def clear(detector: Detector, seen: Seen, found: pl.DataFrame, min_step_share: float) -> Finding:
    """Nobody made the others wait for long."""
    top = number(found["measured"].max()) if found.height else 0.0
    return finding(
        detector,
        Status.CLEAR,
        measured=Quantity(top, Unit.SHARE),
        limit=Quantity(min_step_share, Unit.SHARE),
        confidence=_clear_confidence(seen),
        evidence=(by_rank(seen.usable, seen.late),),
    )


def _clear_confidence(seen: Seen) -> Confidence:
    if seen.usable["entered_ns"].is_null().any():
        return Confidence(Level.MEDIUM, "ranks compared without a common clock")
    return Confidence(Level.HIGH, "ranks compared by two estimators on a common clock")
