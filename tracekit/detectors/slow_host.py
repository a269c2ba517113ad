"""The host of one rank, or all ranks of one host, run the same operators more slowly than others.

What it measures:
    How long the same launching calls take on each rank, against the median rank, where devices wait
    for their hosts.

Formula:
    Slowness of a rank = Σ n · own / Σ n · usual, over launching calls of one name that every rank
    made in the averaged steps: own is the median duration of one, usual the median of that over
    ranks. Ranks that are slow together are one culprit. Measured: slowness − 1.

Threshold:
    Found where slowness − 1 is at least `min_slower_share`, and idle time of the device behind
    launches exceeds the median rank's by `min_step_share` of a step. Healthy hosts differ by some
    per cent; without idle time behind launches a slow host costs nothing.

Evidence:
    Slowness and idle time behind launches by rank; the calls that differ most.

What-if saving:
    Idle time behind launches comes down to the median rank's. Low: less the rank's own waiting.

Recommendation:
    Compare CPU clocks and governors, NUMA binding, and other processes on its cores.

References:
    https://arxiv.org/abs/2402.15627 (MegaScale: some hosts 10 % slower in the same forward pass).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.derive.activity import has_device_events
from tracekit.derive.averages import averages, mean_steps
from tracekit.derive.call_totals import slowness
from tracekit.derive.host_kinds import LAUNCH_OVERHEAD
from tracekit.derive.idle_totals import idle_by_cause
from tracekit.derive.savings import saving
from tracekit.detectors import Detector, finding, number, rank_list, skipped
from tracekit.detectors._cures import as_peers
from tracekit.detectors._stalls import confidence
from tracekit.findings import Cause, Column, Evidence, Finding, Scope, Status
from tracekit.schema import LAUNCHES
from tracekit.units import Quantity, Unit, limit, text

if TYPE_CHECKING:
    from tracekit.store import Run

N_SHOWN = 16


@dataclass(frozen=True, slots=True)
class Limits:
    """When a slow host counts."""

    min_slower_share: float = limit(
        0.1,
        Unit.SHARE,
        "Hosts of healthy jobs differ by some per cent, slow ones by 10 %.",
    )
    min_step_share: float = limit(0.01, Unit.SHARE, "Less than 1 % of a step is noise.")


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for the ranks whose hosts are slow, or a clear one."""
    if not has_device_events(run):
        return (skipped(DETECTOR, "the training thread stands for the device here"),)
    calls = slowness(run, averages(run).steps)
    if calls.is_empty():
        return (skipped(DETECTOR, f"no call is common to all ranks. {DETECTOR.how}"),)
    ranks = _ranks(run, calls)
    is_slow = (pl.col("slower_share") >= limits.min_slower_share) & (
        pl.col("extra_ns") >= limits.min_step_share * pl.col("step_ns")
    )
    slow = ranks.filter(is_slow)
    top = number((slow if slow.height else ranks)["slower_share"].max())
    shown: dict[str, Any] = {
        "measured": Quantity(max(top, 0.0), Unit.SHARE),
        "limit": Quantity(limits.min_slower_share, Unit.SHARE),
        "confidence": confidence(run),
        "evidence": (_by_rank(ranks),),
    }
    if slow.is_empty() or 2 * slow.height > ranks.height:
        return (finding(DETECTOR, Status.CLEAR, **shown),)
    at_fault = slow["rank"].to_list()
    who = f"Rank {at_fault[0]}" if len(at_fault) == 1 else f"Ranks {rank_list(at_fault)}"
    hosts = {run.capture(rank).host for rank in at_fault}
    runs = "runs" if len(at_fault) == 1 else "run"
    where = f" on host {next(iter(hosts))}" if len(hosts) == 1 and None not in hosts else ""
    high_ns = number(slow["extra_ns"].max())
    shown["evidence"] = (*shown["evidence"], _by_call(calls, at_fault))
    return (
        finding(
            DETECTOR,
            Status.FOUND,
            subject=who.lower(),
            title=f"{who}{where} {runs} the same calls {text(top, Unit.SHARE)} more slowly",
            cause=Cause.SLOW_HOST,
            ranks=tuple(at_fault),
            steps=averages(run).steps,
            saving=saving(
                high_ns - number(slow["waiting_ns"].max()),
                high_ns,
                number(ranks["step_ns"].mean()),
                mean_steps(run).height,
                "its idle time behind launches comes down to the median rank's; upper bound",
            ),
            scope=Scope(victims=tuple(ranks.filter(~is_slow)["rank"])),
            why=f"its device is idle behind launches for {text(high_ns, Unit.NS)} a step more than "
            "the median rank's",
            **shown,
        ),
    )


def _ranks(run: Run, calls: pl.DataFrame) -> pl.DataFrame:
    """`rank`, `slower_share`, `idle_ns` behind launches, `extra_ns` over the median, step, wait."""
    n_steps = max(len(averages(run).steps), 1)
    idle_ns = (
        idle_by_cause(run)
        .filter(cause=LAUNCH_OVERHEAD)
        .select("rank", idle_ns=pl.col("dur_ns") / n_steps)
    )
    steps = (
        mean_steps(run)
        .group_by("rank")
        .agg(step_ns=pl.col("dur_ns").mean(), waiting_ns=pl.col("exposed_waiting_ns").mean())
    )
    own_ns, usual_ns = pl.col("own_ns").sum(), pl.col("usual_ns").sum()
    return (
        calls.group_by("rank")
        .agg(slower_share=own_ns / usual_ns - 1)
        .join(steps, on="rank", validate="1:1")
        .join(idle_ns, on="rank", how="left", validate="1:1")
        .with_columns(pl.col("idle_ns").fill_null(0.0))
        .with_columns(extra_ns=(pl.col("idle_ns") - pl.col("idle_ns").median()).clip(0))
        .sort("rank")
    )


def _by_rank(ranks: pl.DataFrame) -> Evidence:
    rows = ranks.sort("slower_share", "rank", descending=[True, False]).head(N_SHOWN)
    return Evidence(
        title="The same calls on each host",
        columns=(
            Column("rank"),
            Column("slower than the median rank", Unit.SHARE),
            Column("device idle behind launches, a step", Unit.NS),
            Column("more than the median rank", Unit.NS),
        ),
        rows=tuple(rows.select("rank", "slower_share", "idle_ns", "extra_ns").iter_rows()),
    )


def _by_call(calls: pl.DataFrame, at_fault: list[int]) -> Evidence:
    extra_ns = pl.col("own_ns") - pl.col("usual_ns")
    rows = (
        calls.filter(pl.col("rank").is_in(at_fault))
        .group_by("name")
        .agg(
            n_calls=pl.col("n_calls").mean(),
            own_ns=(pl.col("own_ns") / pl.col("n_calls")).mean(),
            usual_ns=(pl.col("usual_ns") / pl.col("n_calls")).mean(),
            extra_ns=extra_ns.mean(),
        )
        .sort("extra_ns", "name", descending=[True, False])
        .head(N_SHOWN)
    )
    return Evidence(
        title="Calls that differ most, a step",
        columns=(
            Column("call"),
            Column("calls", Unit.COUNT),
            Column("here, each", Unit.NS),
            Column("on the median rank, each", Unit.NS),
            Column("more, a step", Unit.NS),
        ),
        rows=tuple(rows.iter_rows()),
    )


DETECTOR = Detector(
    id="slow-host",
    title="A host runs the same calls more slowly",
    clear="Hosts run the same calls equally fast",
    needs=(LAUNCHES,),
    how="Record with ProfilerActivity.CPU as well as CUDA.",
    min_ranks=3,
    limits=Limits,
    detect=detect,
    cure=as_peers,
)
