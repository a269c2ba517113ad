"""Some ranks send or receive more than others in all-to-all, and all wait for their bytes.

What it measures:
    Bytes of each member of an all-to-all, the larger of what it sends and what it receives. The
    exchange ends when the member with most of them is done.

Formula:
    measured = Σ max bytes over members / Σ mean bytes over members, of the exchanges of averaged
    steps. Extra time of a step, on the rank that shows most = Σ exposed transfer ×
    (1 − mean bytes / max bytes).

Threshold:
    Found when measured is at least `max_ratio` and the extra time at least `min_step_share` of a
    step. Skipped where bytes or members are not recorded, and of jobs without devices.

Evidence:
    Bytes by rank and group against the mean member.

What-if saving:
    Low: what a replay gives in which all members move the mean. High: the extra time, if that is
    more.

Recommendation:
    Balance what ranks exchange: experts by tokens, embedding tables by the rows that are asked for.

References:
    https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/p2p.html (all-to-all).
    https://arxiv.org/abs/2401.06066 (DeepSeekMoE: balance over devices and of communication).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.derive.activity import has_device_events
from tracekit.derive.averages import averages, mean_steps
from tracekit.derive.groups import groups
from tracekit.derive.savings import saving
from tracekit.derive.shown_transfers import shown_transfers
from tracekit.derive.uneven_exchanges import exchanges
from tracekit.detectors import Detector, finding, number, rank_list, skipped
from tracekit.detectors._cures import even_exchanges
from tracekit.detectors._transfers import ON_HOSTS
from tracekit.findings import Cause, Column, Confidence, Evidence, Finding, Level, Scope, Status
from tracekit.schema import COLLECTIVES
from tracekit.units import Quantity, Unit, limit, text

if TYPE_CHECKING:
    from tracekit.store import Run

MAX_SHOWN = 32
_NONE = (
    "no all-to-all of which all members and their bytes were recorded. Record all ranks, with the "
    "process groups (torch 2.4 or later writes bytes and splits)."
)


@dataclass(frozen=True, slots=True)
class Limits:
    """How uneven exchanges must be, and for how much of a step."""

    max_ratio: float = limit(
        1.2, Unit.RATIO, "Routers with a balancing loss keep the fullest rank within a fifth."
    )
    min_step_share: float = limit(
        0.01, Unit.SHARE, "What nothing hides of less than a hundredth is not worth a change."
    )


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for the run."""
    if not has_device_events(run):
        return (skipped(DETECTOR, ON_HOSTS),)
    means, calls = mean_steps(run), _in_steps(run)
    if means.is_empty() or calls.is_empty():
        return (skipped(DETECTOR, _NONE),)
    n_steps = max(1, len(averages(run).steps))
    step_ns = number(means["dur_ns"].mean())
    ratio = number(calls["max_bytes"].sum()) / number(calls["mean_bytes"].sum())
    extra = (calls["exposed_transfer_ns"] * (1 - calls["mean_bytes"] / calls["max_bytes"])).alias(
        "extra_ns"
    )
    by_rank = calls.with_columns(extra).group_by("rank").agg(pl.col("extra_ns").sum() / n_steps)
    extra_ns = number(by_rank["extra_ns"].max())
    shown: dict[str, Any] = {
        "measured": Quantity(ratio, Unit.RATIO),
        "limit": Quantity(limits.max_ratio, Unit.RATIO),
    }
    if ratio < limits.max_ratio or extra_ns < limits.min_step_share * step_ns:
        return (finding(DETECTOR, Status.CLEAR, **shown),)
    shares = _shares(calls)
    heavy = shares.filter(pl.col("ratio") >= limits.max_ratio)["rank"].unique().sort().to_list()
    names = calls["group"].unique().sort().to_list()
    who = f"{_ranks(heavy)} moves" if heavy else "The fullest rank of an exchange moves"
    return (
        finding(
            DETECTOR,
            Status.FOUND,
            title=f"{who} {text(ratio, Unit.RATIO)} the mean bytes in all-to-all",
            cause=_cause(run, names),
            ranks=tuple(heavy),
            groups=tuple(names[:MAX_SHOWN]),
            scope=Scope(victims=tuple(r for r in run.ranks if r not in heavy) if heavy else ()),
            saving=saving(
                extra_ns,
                extra_ns,
                step_ns,
                means.height,
                "each member moves the mean bytes of its exchange; transfers follow bytes",
            ),
            confidence=Confidence(
                Level.MEDIUM, f"bytes of {calls['instance'].n_unique()} exchanges, as recorded"
            ),
            evidence=(_table(shares),),
            **shown,
        ),
    )


def _ranks(heavy: list[int]) -> str:
    return f"Rank {heavy[0]}" if len(heavy) == 1 else f"Each of ranks {rank_list(heavy)}"


def _in_steps(run: Run) -> pl.DataFrame:
    """Members of exchanges in averaged steps, with what of their transfer shows."""
    shown = shown_transfers(run).select("instance", "rank", "exposed_transfer_ns", "step")
    return exchanges(run).join(shown, on=["instance", "rank"], validate="1:1")


def _shares(calls: pl.DataFrame) -> pl.DataFrame:
    """What each rank moves in each group: `ratio` to the mean member, the most first."""
    return (
        calls.group_by("rank", "group")
        .agg(
            n_calls=pl.len(),
            size_bytes=pl.col("size_bytes").sum(),
            ratio=pl.col("size_bytes").sum() / pl.col("mean_bytes").sum(),
        )
        .sort("ratio", "rank", "group", descending=[True, False, False])
    )


def _cause(run: Run, names: list[str]) -> Cause:
    """Experts where the job calls the group so: all-to-all alone may carry embeddings as well."""
    named = groups(run).filter(pl.col("group").is_in(names) & ~pl.col("is_inferred"))
    is_expert = "expert" in named["dimension"].to_list()
    return Cause.EXPERT_IMBALANCE if is_expert else Cause.DATA_IMBALANCE


def _table(shares: pl.DataFrame) -> Evidence:
    return Evidence(
        title="Bytes in all-to-all, averaged steps",
        columns=(
            Column("rank"),
            Column("group"),
            Column("calls", Unit.COUNT),
            Column("bytes", Unit.BYTES),
            Column("against the mean member", Unit.RATIO),
        ),
        rows=tuple(
            shares.select("rank", "group", "n_calls", "size_bytes", "ratio")
            .head(MAX_SHOWN)
            .iter_rows()
        ),
    )


DETECTOR = Detector(
    id="imbalanced-all-to-all",
    title="Ranks move unequal bytes in all-to-all",
    clear="Ranks move equal bytes in all-to-all",
    needs=(COLLECTIVES,),
    how="Record whole steps of all ranks with CUDA activity on.",
    min_ranks=2,
    limits=Limits,
    detect=detect,
    cure=even_exchanges,
)
