"""The devices stand still while data move between ranks: transfer that no compute hides.

What it measures:
    Communication that runs while no compute kernel does, waiting for a late rank taken out: that is
    the late rank's fault, not the network's.

Formula:
    X = union of [a_r + wait_r, b_r) over a rank's collectives. exposed transfer = |X ∖ C|; exposed
    communication that cannot be split (`unsplit`) counts too, but supports no saving.
    measured = mean over devices and averaged steps of (exposed transfer + unsplit) / T.

Threshold:
    Found when measured is at least `max_step_share`.

Evidence:
    What the exposed transfer is owed to, by group and operation; exposed waiting, exposed transfer,
    unsplit and hidden communication by rank; the operations that take the time.

What-if saving:
    Of what its bytes take alone: what slow groups, tails, copies beside it, repeated or serialized
    reductions and the like make of it is theirs (`derive/exposed_causes`). Low: the rest comes down
    to the limit, as on runs that overlap well. High: all of the rest hides behind compute that is
    exposed now, as far as there is any, and at most what a replay gains in which transfers take no
    time.

Recommendation:
    By the dimension and operation that shows most: prefetch and hybrid sharding, buckets, overlap
    of chunks or of micro-batches.

References:
    https://arxiv.org/abs/2504.09307 (Lumos).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.derive.averages import averages, breakdowns, mean_steps
from tracekit.derive.exposed_causes import BYTES, exposed_causes
from tracekit.derive.groups import groups
from tracekit.derive.savings import saving
from tracekit.derive.waits import waits
from tracekit.detectors import Detector, finding, number, skipped
from tracekit.detectors._cures import hidden_transfers
from tracekit.detectors._exposed_advice import hiding
from tracekit.findings import (
    Cause,
    Column,
    Confidence,
    Evidence,
    Finding,
    Level,
    Published,
    Recommendation,
    Status,
)
from tracekit.schema import COLLECTIVES
from tracekit.units import Quantity, Unit, limit, text

if TYPE_CHECKING:
    from tracekit.store import Run


@dataclass(frozen=True, slots=True)
class Limits:
    """When exposed transfer is worth a look."""

    max_step_share: float = limit(
        0.1, Unit.SHARE, "Runs that overlap well leave up to a tenth of the step exposed."
    )


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for the run."""
    rows = breakdowns(run)
    means = mean_steps(run)
    if means.is_empty():
        return (skipped(DETECTOR, "no device activity in the traces"),)
    step_ns = number(means["dur_ns"].mean())
    transfer_ns = number(means["exposed_transfer_ns"].mean())
    unsplit_ns = number(means["unsplit_communication_ns"].mean())
    measured = Quantity((transfer_ns + unsplit_ns) / step_ns, Unit.SHARE)
    causes, n_parts = exposed_causes(run), max(1, means.height * len(averages(run).steps))
    of_bytes = causes.filter(cause=BYTES)
    owed_ns = number(causes.filter(pl.col("cause") != BYTES)["exposed_ns"].sum()) / n_parts
    shares: dict[str, Any] = {
        "measured": measured,
        "limit": Quantity(limits.max_step_share, Unit.SHARE),
        "evidence": (_by_cause(causes, n_parts), _by_rank(means), _by_operation(run)),
        "confidence": _confidence(transfer_ns, unsplit_ns),
    }
    if measured.value < limits.max_step_share:
        return (finding(DETECTOR, Status.CLEAR, **shares),)
    hides_ns = number(means["exposed_compute_ns"].mean())
    bought = saving(
        _least_ns(rows, causes) - limits.max_step_share * step_ns,
        min(transfer_ns - owed_ns, hides_ns),
        step_ns,
        means.height,
        f"exposed transfer hides behind compute that is exposed now, {text(hides_ns, Unit.NS)} a "
        f"step; low end: down to {text(limits.max_step_share, Unit.SHARE)} of it; upper bound",
    )
    exposed = text(transfer_ns + unsplit_ns, Unit.NS)
    return (
        finding(
            DETECTOR,
            Status.FOUND,
            title=f"{exposed} of each step is communication nothing hides",
            cause=Cause.EXPOSED_COMMUNICATION,
            saving=bought if transfer_ns > 0 else None,
            recommendation=_advice(run, of_bytes),
            **shares,
        ),
    )


def _least_ns(rows: pl.DataFrame, causes: pl.DataFrame) -> float:
    """Exposed transfer that all ranks have for its bytes alone, mean over averaged steps.

    What transfers take longer for another cause, hidden or not, would let later ones begin earlier.
    While the others wait for a late rank, what they could have hidden later transfers under runs
    out: what they have more than that rank goes with its lateness.
    """
    owed = (
        causes.filter(pl.col("cause") != BYTES)
        .group_by("rank", "step")
        .agg(owed_ns=pl.max_horizontal(pl.col("exposed_ns").sum(), pl.col("extra_ns").sum()))
    )
    of_bytes_ns = (pl.col("exposed_transfer_ns") - pl.col("owed_ns").fill_null(0)).min()
    in_step = (
        rows.filter("is_averaged")
        .join(owed, on=["rank", "step"], how="left", validate="m:1")
        .group_by("step")
        .agg(of_bytes_ns=of_bytes_ns)
    )
    return number(in_step["of_bytes_ns"].mean())


def _advice(run: Run, of_bytes: pl.DataFrame) -> Recommendation | None:
    """What would hide the group and operation that shows most for its bytes."""
    most = (
        of_bytes.group_by("group", "operation")
        .agg(pl.col("exposed_ns").sum())
        .join(groups(run).select("group", "dimension"), on="group", how="left", validate="m:1")
        .sort("exposed_ns", "group", "operation", descending=[True, False, False])
        .head(1)
    )
    rows = most.select("dimension", "operation").rows()
    return hiding(*rows[0]) if rows else None


def _by_cause(causes: pl.DataFrame, n_parts: int) -> Evidence:
    place = ("cause", "group", "operation")
    rows = (
        causes.filter(pl.col("exposed_ns") > 0)
        .group_by(place)
        .agg(exposed_ns=pl.col("exposed_ns").sum() / n_parts)
        .sort("exposed_ns", *place, descending=[True, False, False, False], nulls_last=True)
        .with_columns(pl.col("operation").fill_null("not known"))
        .head(16)
    )
    return Evidence(
        title="What exposed transfer is owed to, mean step of a rank",
        columns=(
            Column("owed to"),
            Column("group"),
            Column("operation"),
            Column("exposed transfer", Unit.NS),
        ),
        rows=tuple(rows.iter_rows()),
    )


def _confidence(transfer_ns: float, unsplit_ns: float) -> Confidence:
    if unsplit_ns > transfer_ns:
        return Confidence(
            Level.LOW,
            "most of it cannot be split into waiting and transfer: peers are missing, or the "
            "operation lets ranks leave early",
        )
    return Confidence(Level.MEDIUM, "waiting is taken out without aligned clocks")


def _by_rank(means: pl.DataFrame) -> Evidence:
    table = means.select(
        "rank",
        "device",
        "dur_ns",
        "exposed_transfer_ns",
        "exposed_waiting_ns",
        "unsplit_communication_ns",
        "overlapped_ns",
    ).sort("exposed_transfer_ns", "rank", descending=[True, False])
    return Evidence(
        title="Communication of the mean step",
        columns=(
            Column("rank"),
            Column("device"),
            Column("step", Unit.NS),
            Column("exposed transfer", Unit.NS),
            Column("exposed waiting", Unit.NS),
            Column("exposed, not split", Unit.NS),
            Column("hidden", Unit.NS),
        ),
        rows=tuple(table.head(16).iter_rows()),
    )


def _by_operation(run: Run) -> Evidence:
    table = (
        waits(run)
        .group_by(pl.col("operation").fill_null("not known"), "group")
        .agg(
            n_calls=pl.len(),
            dur_ns=pl.col("dur_ns").sum(),
            wait_ns=pl.col("wait_ns").sum(),
            bytes_in=pl.col("bytes_in").sum(),
        )
        .sort("dur_ns", "operation", "group", descending=[True, False, False])
        .head(12)
        .collect()
    )
    return Evidence(
        title="Operations, all ranks, whole trace",
        columns=(
            Column("operation"),
            Column("group"),
            Column("calls", Unit.COUNT),
            Column("time in kernels", Unit.NS),
            Column("of it waiting", Unit.NS),
            Column("bytes put in", Unit.BYTES),
        ),
        rows=tuple(table.iter_rows()),
    )


DETECTOR = Detector(
    id="exposed-communication",
    title="Communication is not hidden behind compute",
    clear="Communication hides behind compute",
    needs=(COLLECTIVES,),
    how="Record a whole step of a job of several ranks with CUDA activity on.",
    limits=Limits,
    detect=detect,
    cure=hidden_transfers,
    is_bound=True,
    published=(Published(3, "Lumos", "2504.09307"),),
)
