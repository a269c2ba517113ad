"""The collectives of one group take longer than the same collectives of its peers.

What it measures:
    Transfers of a group, from its last arrival on: nobody inside it is waited for. Peers are groups
    of the same parallel dimension whose members lie equally far apart; they move the same bytes.

Formula:
    For each operation and size p50(group), and its median over the peers, of two the faster one.
    measured = Σ n · p50 / Σ n · p50 of peers. Extra time of a step = exposed transfer of the group
    in the mean step × (1 − 1 / measured).

Threshold:
    Found when measured is at least `max_ratio` and the extra time at least `min_step_share` of a
    step. Skipped where no group has a peer, and of jobs without devices.

Evidence:
    Transfers by group against those of peers, with the hosts of its members; the group's sizes.

What-if saving:
    Low: the extra time that nothing hides, which a replay gives in which its transfers take what
    those of peers take. High: all that its transfers take longer.

Recommendation:
    The members share a link or an adapter that is slow, or shared: measure it with nccl-tests on
    the nodes of this group and on those of a peer.

References:
    https://github.com/NVIDIA/nccl/issues/820 (GPUs that share an adapter).
    https://arxiv.org/abs/2512.12476 (HetRL: groups that cross regions).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.derive.activity import has_device_events
from tracekit.derive.averages import averaged, averages, mean_steps
from tracekit.derive.call_exposure import call_exposure
from tracekit.derive.peer_groups import peer_transfers
from tracekit.derive.savings import saving
from tracekit.detectors import Detector, finding, number, skipped
from tracekit.detectors._cures import transfers_like_peers
from tracekit.detectors._transfers import ON_HOSTS
from tracekit.findings import (
    Cause,
    Column,
    Confidence,
    Evidence,
    Finding,
    Level,
    Published,
    Scope,
    Status,
)
from tracekit.schema import COLLECTIVES
from tracekit.units import Quantity, Unit, limit, text

if TYPE_CHECKING:
    from tracekit.store import Run

MAX_SHOWN, MAX_FINDINGS = 16, 8
_NO_PEERS = (
    "no group has a peer: another one of the same dimension whose members lie equally far apart. "
    "Record all ranks, with the process groups (torch 2.4 or later writes them)."
)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much slower than its peers a group must be, and for how much of a step."""

    max_ratio: float = limit(
        1.3, Unit.RATIO, "Medians of groups on healthy fabrics differ by less than a fifth."
    )
    min_step_share: float = limit(
        0.01, Unit.SHARE, "What nothing hides of less than a hundredth is not worth a search."
    )
    min_calls: int = limit(
        4, Unit.COUNT, "The median of fewer calls is that of one or two unlucky ones."
    )


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for each slow group, the slowest first; else one for the run."""
    if not has_device_events(run):
        return (skipped(DETECTOR, ON_HOSTS),)
    rows = _by_group(run)
    means = mean_steps(run)
    if rows.is_empty() or means.is_empty():
        return (skipped(DETECTOR, _NO_PEERS),)
    step_ns = number(means["dur_ns"].mean())
    is_slow = (
        (pl.col("ratio") >= limits.max_ratio)
        & (pl.col("extra_ns") >= limits.min_step_share * step_ns)
        & (pl.col("n_calls") >= limits.min_calls)
    )
    slow = rows.filter(is_slow).head(MAX_FINDINGS)
    shared: dict[str, Any] = {"limit": Quantity(limits.max_ratio, Unit.RATIO)}
    if slow.is_empty():
        worst = Quantity(number(rows["ratio"].max()), Unit.RATIO)
        return (finding(DETECTOR, Status.CLEAR, measured=worst, **shared),)
    table = _groups(run, rows)
    return tuple(
        _found(run, row, step_ns, means.height, (table, _sizes(run, row["group"])), shared)
        for row in slow.iter_rows(named=True)
    )


def _by_group(run: Run) -> pl.DataFrame:
    """Each group with peers: `ratio` to them, and what of that shows in a mean step, `extra_ns`."""
    n = pl.col("n_calls")
    took_ns, usual_ns = (n * pl.col("p50_ns")).sum(), (n * pl.col("usual_ns")).sum()
    compared = (
        peer_transfers(run)
        .group_by("group")
        .agg(
            pl.col("n_calls").sum(),
            pl.col("n_peers").max(),
            pl.col("members").first(),
            ratio=took_ns / usual_ns,
        )
    )
    n_steps = max(1, len(averages(run).steps))
    exposed = (
        averaged(run, call_exposure)
        .group_by("group", "rank")
        .agg(pl.col("exposed_transfer_ns", "transfer_ns").sum() / n_steps)
        .group_by("group")
        .agg(pl.col("exposed_transfer_ns", "transfer_ns").mean())
    )
    longer = 1 - 1 / pl.col("ratio")
    return (
        compared.join(exposed, on="group", validate="1:1")
        .with_columns(
            extra_ns=(pl.col("exposed_transfer_ns") * longer),
            whole_ns=(pl.col("transfer_ns") * longer),
        )
        .sort("extra_ns", "group", descending=[True, False])
    )


def _found(
    run: Run,
    row: dict[str, Any],
    step_ns: float,
    n_gpus: int,
    evidence: tuple[Evidence, ...],
    shared: dict[str, Any],
) -> Finding:
    ratio, others = Quantity(row["ratio"], Unit.RATIO), row["n_peers"]
    compared = "its only peer" if others == 1 else f"its {others} peers"
    return finding(
        DETECTOR,
        Status.FOUND,
        subject=row["group"],
        title=f"Collectives of group {row['group']} take {ratio} as long as those of {compared}",
        cause=Cause.SLOW_GROUP,
        ranks=tuple(row["members"]),
        groups=(row["group"],),
        measured=ratio,
        confidence=_confidence(others, row["n_calls"]),
        saving=saving(
            row["extra_ns"],
            row["whole_ns"],
            step_ns,
            n_gpus,
            f"its transfers take as long as those of {compared}; low end: what nothing hides of "
            f"them, {text(row['extra_ns'], Unit.NS)} a step",
        ),
        scope=Scope(victims=tuple(r for r in run.ranks if r not in row["members"])),
        evidence=evidence,
        **shared,
    )


def _confidence(n_peers: int, n_calls: int) -> Confidence:
    if n_peers == 1:
        return Confidence(Level.LOW, "two groups: either may be the unusual one")
    return Confidence(
        Level.MEDIUM, f"{n_calls} calls against {n_peers} peers of the same sizes; no waiting in it"
    )


def _groups(run: Run, rows: pl.DataFrame) -> Evidence:
    hosts = {capture.rank: capture.host for capture in run.manifest.captures}
    return Evidence(
        title="Groups against their peers",
        columns=(
            Column("group"),
            Column("hosts"),
            Column("calls", Unit.COUNT),
            Column("against peers", Unit.RATIO),
            Column("exposed transfer a step", Unit.NS),
        ),
        rows=tuple(
            (
                row["group"],
                ", ".join(sorted({hosts.get(rank) or "" for rank in row["members"]} - {""})[:4])
                or None,
                row["n_calls"],
                row["ratio"],
                row["exposed_transfer_ns"],
            )
            for row in rows.head(MAX_SHOWN).iter_rows(named=True)
        ),
    )


def _sizes(run: Run, group: str) -> Evidence:
    rows = peer_transfers(run).filter(group=group).sort("n_calls", "size_bytes", descending=True)
    return Evidence(
        title=f"Transfers of group {group}",
        columns=(
            Column("operation"),
            Column("bytes", Unit.BYTES),
            Column("calls", Unit.COUNT),
            Column("median", Unit.NS),
            Column("median of peers", Unit.NS),
        ),
        rows=tuple(
            rows.select("operation", "size_bytes", "n_calls", "p50_ns", "usual_ns")
            .head(MAX_SHOWN)
            .iter_rows()
        ),
    )


DETECTOR = Detector(
    id="slow-group",
    title="One group's collectives are slow",
    clear="Collectives take peers equally long",
    needs=(COLLECTIVES,),
    how="Record whole steps of all ranks with CUDA activity on.",
    min_ranks=4,
    limits=Limits,
    detect=detect,
    cure=transfers_like_peers,
    published=(Published(13, "HetRL", "2512.12476"),),
)
