"""Context parallel ranks exchange keys and values for longer than attention can hide.

What it measures:
    Transfers of groups that serve context parallelism: rings of messages, gathers of keys and
    values, all-to-all over heads. Transfers grow with the length of sequences, attention with its
    square: on short sequences the exchange shows.

Formula:
    measured = mean over ranks and averaged steps of Σ exposed transfer of context groups / T.
    Its ratio to attention = Σ transfer / Σ attention kernels.

Threshold:
    Found when measured is at least `max_step_share`. Skipped without such groups, and of jobs
    without devices.

Evidence:
    By group: transfers, what of them shows, attention beside them.

What-if saving:
    Low: what a replay gives in which these transfers take no time, as where short sequences stay on
    one rank each. High: all of the exposed transfer.

Recommendation:
    Give sequences as many ranks as their length needs: whole short ones to single ranks, long ones
    to rings.

References:
    https://arxiv.org/abs/2602.21788 (dynamic hybrid parallelism).
    https://arxiv.org/abs/2310.01889 (Ring Attention: when blocks hide the exchange).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.derive.activity import activity, has_device_events
from tracekit.derive.averages import averages, breakdowns, mean_steps
from tracekit.derive.groups import groups
from tracekit.derive.savings import saving
from tracekit.derive.shown_transfers import shown_transfers
from tracekit.detectors import Detector, finding, number, skipped
from tracekit.detectors._cures import without_transfers_of_groups
from tracekit.detectors._transfers import ON_HOSTS
from tracekit.findings import (
    Cause,
    Change,
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

MAX_SHOWN = 16
ADVICE = Recommendation(
    "Give sequences as many ranks as their length needs: pack short ones whole on single ranks, "
    "split long ones alone (context parallelism by length), or lower the degree for all.",
    Change.SETTING,
    ("Megatron-LM: --context-parallel-size N --hierarchical-context-parallel-sizes …",),
)
_NONE = (
    "no group serves context parallelism, by what the job calls it. Record the process groups "
    "(torch 2.4 or later writes their descriptions)."
)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a step the exchange may show."""

    max_step_share: float = limit(
        0.02, Unit.SHARE, "Rings that blocks of attention hide leave their first block only."
    )


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for the run."""
    if not has_device_events(run):
        return (skipped(DETECTOR, ON_HOSTS),)
    names = groups(run).filter(dimension="context")["group"].drop_nulls()
    calls = shown_transfers(run).filter(pl.col("group").is_in(names.implode()))
    means = mean_steps(run)
    if calls.is_empty() or means.is_empty():
        return (skipped(DETECTOR, _NONE),)
    n_parts = max(1, means.height * len(averages(run).steps))
    step_ns = number(means["dur_ns"].mean())
    exposed_ns = number(calls["exposed_transfer_ns"].sum()) / n_parts
    transfer_ns = number(calls["transfer_ns"].sum()) / n_parts
    attention_ns = _attention_ns(run) / n_parts
    shown: dict[str, Any] = {
        "measured": Quantity(exposed_ns / step_ns, Unit.SHARE),
        "limit": Quantity(limits.max_step_share, Unit.SHARE),
    }
    if exposed_ns < limits.max_step_share * step_ns:
        return (finding(DETECTOR, Status.CLEAR, **shown),)
    return (
        finding(
            DETECTOR,
            Status.FOUND,
            title=f"Context parallel exchange shows for {text(exposed_ns, Unit.NS)} of each step",
            cause=Cause.EXPOSED_COMMUNICATION,
            groups=tuple(sorted(names.to_list())[:MAX_SHOWN]),
            saving=saving(
                exposed_ns,
                exposed_ns,
                step_ns,
                means.height,
                "short sequences stay on one rank each and exchange nothing; upper bound",
            ),
            confidence=Confidence(
                Level.MEDIUM,
                f"{text(transfer_ns, Unit.NS)} of transfer against {text(attention_ns, Unit.NS)} "
                "of attention a step",
            ),
            recommendation=ADVICE,
            evidence=(_table(calls, n_parts),),
            **shown,
        ),
    )


def _attention_ns(run: Run) -> float:
    """Attention kernels of all ranks in averaged steps, by start."""
    steps = breakdowns(run).filter("is_averaged")
    total = 0.0
    for rank in run.ranks:
        windows = steps.filter(rank=rank).select(
            "device", since_ns="start_ns", until_ns=pl.col("start_ns") + pl.col("dur_ns")
        )
        inside = (
            activity(run, rank)
            .filter(pl.col("kind") == "attention")
            .select("device", "start_ns", dur_ns=pl.col("end_ns") - pl.col("start_ns"))
            .sort("start_ns")
            .join_asof(
                windows.lazy().sort("since_ns"),
                left_on="start_ns",
                right_on="since_ns",
                by="device",
                check_sortedness=False,
            )
            .filter(pl.col("start_ns") < pl.col("until_ns"))
            .select(pl.col("dur_ns").sum())
            .collect()
        )
        total += number(inside.item())
    return total


def _table(calls: pl.DataFrame, n_parts: int) -> Evidence:
    rows = (
        calls.group_by("group", pl.col("operation").fill_null("not known"))
        .agg(
            n=pl.len() / n_parts,
            median_ns=pl.col("transfer_ns").median(),
            transfer_ns=pl.col("transfer_ns").sum() / n_parts,
            exposed_ns=pl.col("exposed_transfer_ns").sum() / n_parts,
        )
        .sort("exposed_ns", "group", descending=[True, False])
        .head(MAX_SHOWN)
    )
    return Evidence(
        title="Exchange of context parallel groups, mean step, by rank of the run",
        columns=(
            Column("group"),
            Column("operation"),
            Column("calls", Unit.COUNT),
            Column("median transfer", Unit.NS),
            Column("transfer", Unit.NS),
            Column("of it exposed", Unit.NS),
        ),
        rows=tuple(rows.iter_rows()),
    )


DETECTOR = Detector(
    id="context-parallel-waste",
    title="Context parallel exchange is not hidden",
    clear="Attention hides the exchange of context parallel ranks",
    needs=(COLLECTIVES,),
    how="Record whole steps of all ranks with CUDA activity on.",
    min_ranks=2,
    limits=Limits,
    detect=detect,
    cure=without_transfers_of_groups,
    is_bound=True,
    published=(Published(20, "DHP", "2602.21788"),),
)
