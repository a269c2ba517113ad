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
    Exposed waiting, exposed transfer, unsplit and hidden communication by rank; the operations that
    take the time.

What-if saving:
    Low: the exposed transfer comes down to the limit, as on runs that overlap well. High: all of it
    hides behind compute that is exposed now, as far as there is any, and at most what a replay
    gains in which transfers take no time.

Recommendation:
    Overlap communication with compute (bucket sizes, prefetch), or send less.

References:
    https://arxiv.org/abs/2504.09307 (Lumos).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.derive.averages import breakdowns, mean_steps
from tracekit.derive.savings import saving
from tracekit.derive.waits import waits
from tracekit.detectors import Detector, finding, number, skipped
from tracekit.detectors._cures import hidden_transfers
from tracekit.findings import Cause, Column, Confidence, Evidence, Finding, Level, Published, Status
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
    shares: dict[str, Any] = {
        "measured": measured,
        "limit": Quantity(limits.max_step_share, Unit.SHARE),
        "evidence": (_by_rank(means), _by_operation(run)),
        "confidence": _confidence(transfer_ns, unsplit_ns),
    }
    if measured.value < limits.max_step_share:
        return (finding(DETECTOR, Status.CLEAR, **shares),)
    hides_ns = number(means["exposed_compute_ns"].mean())
    bought = saving(
        _least_ns(rows) - limits.max_step_share * step_ns,
        min(transfer_ns, hides_ns),
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
            **shares,
        ),
    )


def _least_ns(rows: pl.DataFrame) -> float:
    """Exposed transfer that all ranks have, mean over averaged steps.

    While the others wait for a late rank, what they could have hidden later transfers under runs
    out: what they have more than that rank goes with its lateness.
    """
    in_step = rows.filter("is_averaged").group_by("step").agg(pl.col("exposed_transfer_ns").min())
    return number(in_step["exposed_transfer_ns"].mean())


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
