"""Now and then a collective takes far longer than the same one usually does, with nobody late.

What it measures:
    Transfers of single collectives, from the last arrival on, against the median of their group,
    operation and size.

Formula:
    A collective is in the tail where its transfer is at least twice that median (of eight calls or
    more). Its extra time is transfer − median, as far as nothing hides it.
    measured = mean over ranks and averaged steps of the extra time / T.

Threshold:
    Found when measured is at least `max_step_share` and at least `min_calls` calls are in the tail.
    Skipped where nothing is known of eight transfers of one size, and of jobs without devices.

Evidence:
    Groups with a tail: how many calls, how long they take and usually take; the worst calls.

What-if saving:
    Low: what nothing hides, which a replay gives in which these calls take what is usual. High: all
    of their extra time.

Recommendation:
    What to look for in a fabric: congestion, retransmissions, a link that flaps.

References:
    https://arxiv.org/abs/2507.07114 (training under packet loss: the tail sets the step).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.derive.activity import has_device_events
from tracekit.derive.averages import averages, mean_steps
from tracekit.derive.savings import saving
from tracekit.derive.shown_transfers import shown_transfers
from tracekit.derive.traffic import comparable
from tracekit.derive.transfer_tails import MIN_CALLS, tails
from tracekit.detectors import Detector, finding, number, skipped
from tracekit.detectors._cures import usual_tails
from tracekit.detectors._transfers import ON_HOSTS
from tracekit.findings import Cause, Column, Confidence, Evidence, Finding, Level, Published, Status
from tracekit.schema import COLLECTIVES
from tracekit.units import Quantity, Unit, limit, text

if TYPE_CHECKING:
    from tracekit.store import Run

MAX_ROWS = 16


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a tail must cost, and how often it must show."""

    max_step_share: float = limit(
        0.02, Unit.SHARE, "Fabrics have a tail; below a fiftieth of a step nobody finds its cause."
    )
    min_calls: int = limit(
        3, Unit.COUNT, "One call may be the first of a communicator, two may be chance."
    )


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for the run."""
    means = mean_steps(run)
    if not has_device_events(run):
        return (skipped(DETECTOR, ON_HOSTS),)
    if means.is_empty() or not _has_many(run):
        return (skipped(DETECTOR, f"fewer than {MIN_CALLS} transfers of a kind. {DETECTOR.how}"),)
    step_ns = number(means["dur_ns"].mean())
    calls = _extra(run)
    n_tail = calls["instance"].n_unique()
    n_parts = max(1, means.height * len(averages(run).steps))
    exposed_ns, extra_ns = (
        number(calls[name].sum()) / n_parts for name in ("exposed_extra_ns", "extra_ns")
    )
    shown: dict[str, Any] = {
        "measured": Quantity(exposed_ns / step_ns, Unit.SHARE),
        "limit": Quantity(limits.max_step_share, Unit.SHARE),
    }
    if shown["measured"].value < limits.max_step_share or n_tail < limits.min_calls:
        return (finding(DETECTOR, Status.CLEAR, **shown),)
    table = _by_group(calls)
    return (
        finding(
            DETECTOR,
            Status.FOUND,
            title=f"{n_tail} collectives took {_times(calls)} as long as usual, with nobody late",
            cause=Cause.NETWORK_TAIL,
            groups=tuple(table["group"].unique(maintain_order=True).to_list()),
            saving=saving(
                exposed_ns,
                extra_ns,
                step_ns,
                means.height,
                "these collectives take what is usual for their size; low end: what nothing hides "
                f"of the rest, {text(exposed_ns, Unit.NS)} a step",
            ),
            confidence=Confidence(Level.MEDIUM, f"{n_tail} calls; waiting is taken out"),
            evidence=(_groups(table), _worst(calls)),
            **shown,
        ),
    )


def _has_many(run: Run) -> bool:
    """Whether any kind of collective has enough transfers to have a tail."""
    kinds = comparable(run).group_by("group", "operation", "size_bytes").len().collect()
    return number(kinds["len"].max()) >= MIN_CALLS


def _extra(run: Run) -> pl.DataFrame:
    """Calls of averaged steps in the tail with `extra_ns` and `exposed_extra_ns`, by rank."""
    extra = pl.col("transfer_ns") - pl.col("usual_ns")
    return (
        shown_transfers(run)
        .drop("group", "operation", "transfer_ns")
        .join(tails(run), on="instance", validate="m:1")
        .with_columns(extra_ns=extra)
        .with_columns(exposed_extra_ns=pl.min_horizontal("extra_ns", pl.col("exposed_transfer_ns")))
        .drop_nulls("exposed_extra_ns")
    )


def _times(calls: pl.DataFrame) -> str:
    """How much longer than usual the calls took, from the least to the most."""
    ratios = (calls["transfer_ns"] / calls["usual_ns"]).sort()
    low, high = (text(number(ratios[place]), Unit.RATIO) for place in (0, -1))
    return high if low == high else f"{low} to {high}"


def _by_group(calls: pl.DataFrame) -> pl.DataFrame:
    of_instance = calls.unique("instance", keep="first", maintain_order=True)
    return (
        of_instance.group_by("group", "operation", "size_bytes")
        .agg(
            n_calls=pl.len(),
            median_ns=pl.col("transfer_ns").median(),
            usual_ns=pl.col("usual_ns").first(),
            extra_ns=pl.col("extra_ns").sum(),
        )
        .sort("extra_ns", "group", descending=[True, False])
        .head(MAX_ROWS)
    )


def _groups(table: pl.DataFrame) -> Evidence:
    return Evidence(
        title="Groups with a tail, in the averaged steps",
        columns=(
            Column("group"),
            Column("operation"),
            Column("bytes", Unit.BYTES),
            Column("calls in the tail", Unit.COUNT),
            Column("their median", Unit.NS),
            Column("usually", Unit.NS),
            Column("extra, sum", Unit.NS),
        ),
        rows=tuple(table.iter_rows()),
    )


def _worst(calls: pl.DataFrame) -> Evidence:
    rows = (
        calls.unique("instance", keep="first", maintain_order=True)
        .sort("extra_ns", descending=True)
        .head(MAX_ROWS)
        .select("step", "group", "operation", "start_ns", "transfer_ns", "usual_ns")
    )
    return Evidence(
        title="The longest of these calls",
        columns=(
            Column("step"),
            Column("group"),
            Column("operation"),
            Column("from run start", Unit.NS),
            Column("transfer", Unit.NS),
            Column("usually", Unit.NS),
        ),
        rows=tuple(rows.iter_rows()),
    )


DETECTOR = Detector(
    id="network-tail",
    title="Some collectives take far longer than usual",
    clear="Collectives of one size take equally long",
    needs=(COLLECTIVES,),
    how="Record more whole steps of all ranks with CUDA activity on.",
    min_ranks=2,
    limits=Limits,
    detect=detect,
    cure=usual_tails,
    published=(Published(10, "Training under packet loss", "2507.07114"),),
)
