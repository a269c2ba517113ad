"""What a job would be without what a detector found, as changes to its replay.

A cure gives one changed job, or two between which the truth lies, as where work could be shared
evenly or be as the median rank's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.derive.bandwidths import against_baselines
from tracekit.derive.gradient_sync import repeated_reductions
from tracekit.derive.held_compute import held
from tracekit.derive.host_causes import host_calls
from tracekit.derive.host_kinds import CLASSES
from tracekit.derive.intervals import gaps
from tracekit.derive.peer_groups import peer_transfers
from tracekit.derive.small_calls import small_calls
from tracekit.derive.traffic import traffic
from tracekit.derive.transfer_tails import tails
from tracekit.findings import Cause, Finding
from tracekit.store import Run
from tracekit.what_if.changes import IS_HOST, Changes
from tracekit.what_if.peers import (
    device_like_peers,
    even_in_steps,
    even_over_ranks,
    even_over_stages,
    like_peers,
    shared_by_speed,
)
from tracekit.what_if.questions import intervals_of

if TYPE_CHECKING:
    from tracekit.what_if.schedule import Ints

Cure = Callable[[Changes, Run, Finding], tuple[Changes, ...]]
IS_COMPUTE = pl.col("class") == "compute"


def as_peers(changes: Changes, run: Run, finding: Finding) -> tuple[Changes, ...]:
    """Devices and hosts of the ranks at fault take what those of their peers do.

    Tokens that experts do not get go to others, so there work is shared evenly; layers that a stage
    does not have may go to others too. A rank that is alone in its stage does no host work of the
    kind at fault.
    """
    ranks, cause = finding.ranks, finding.cause
    if cause is Cause.EXPERT_IMBALANCE:
        return (even_over_ranks(changes, IS_COMPUTE),)
    if cause is Cause.STAGE_IMBALANCE:
        return even_over_stages(changes, IS_COMPUTE), like_peers(changes, run, ranks)
    if cause is not None and cause.value in CLASSES and not _has_peers(changes, ranks):
        intervals = {rank: intervals_of(run, rank, cause.value) for rank in ranks}
        return (changes.without_host(intervals),)
    return (like_peers(changes, run, ranks),)


def _has_peers(changes: Changes, ranks: tuple[int, ...]) -> bool:
    """Whether each of the ranks shares its stage with another that is not at fault."""
    places = changes.replay.work.select("rank", "stage").unique()
    own = pl.col("rank").is_in(ranks)
    return set(places.filter(own)["stage"]) <= set(places.filter(~own)["stage"])


def even_or_as_peers(which: pl.Expr) -> Cure:
    """Work is shared evenly; or the ranks at fault have as much as the median of their peers."""

    def cure(changes: Changes, _run: Run, finding: Finding) -> tuple[Changes, ...]:
        return even_over_ranks(changes, which), device_like_peers(changes, finding.ranks)

    return cure


def even_stages(changes: Changes, _run: Run, finding: Finding) -> tuple[Changes, ...]:
    """Stages compute evenly; or the longest one as long as the median of the others."""
    return even_over_stages(changes, IS_COMPUTE), device_like_peers(changes, finding.ranks)


def by_speed(changes: Changes, _run: Run, _finding: Finding) -> tuple[Changes, ...]:
    """Each device gets work by its speed, so that all end together."""
    return (shared_by_speed(changes, IS_COMPUTE),)


def even_micro_batches(changes: Changes, _run: Run, _finding: Finding) -> tuple[Changes, ...]:
    """Each kernel takes in all micro-batches of a step what it takes in the mean one."""
    return (even_in_steps(changes, IS_COMPUTE),)


def hidden_transfers(changes: Changes, _run: Run, _finding: Finding) -> tuple[Changes, ...]:
    """Transfers take no time; members still begin together."""
    return (changes.scaled(pl.col("class") == "communication", 0.0),)


def transfers_like_peers(changes: Changes, run: Run, finding: Finding) -> tuple[Changes, ...]:
    """Transfers of the groups at fault take what those of peers do, none longer than now."""
    return (_as_usual(changes, run, finding, peer_transfers(run)),)


def transfers_as_measured(changes: Changes, run: Run, finding: Finding) -> tuple[Changes, ...]:
    """Transfers of the groups at fault have the bandwidth that nccl-tests measured, or more."""
    return (_as_usual(changes, run, finding, against_baselines(run)),)


def _as_usual(changes: Changes, run: Run, finding: Finding, known: pl.DataFrame) -> Changes:
    """Transfers of the groups at fault take `usual_ns` of what is known, none longer than now."""
    usual = known.select("group", "operation", "size_bytes", "p50_ns", "usual_ns")
    factors = usual.filter(pl.col("group").is_in(finding.groups)).with_columns(
        factor=pl.min_horizontal(pl.col("usual_ns") / pl.col("p50_ns"), 1.0)
    )
    of_instances = (
        traffic(run)
        .drop_nulls(["instance", "size_bytes"])
        .collect()
        .join(factors, on=["group", "operation", "size_bytes"], validate="m:1")
        .select("instance", "factor")
    )
    return _slower(changes, of_instances)


def bucketed(changes: Changes, run: Run, _finding: Finding) -> tuple[Changes, ...]:
    """Small collectives take their bytes, and their part of the start of a bucket."""
    factors = (
        small_calls(run)
        .group_by("instance")
        .agg(factor=(pl.col("merged_ns") / pl.col("took_ns")).max())
    )
    return (_slower(changes, factors),)


def hidden_reductions(changes: Changes, run: Run, _finding: Finding) -> tuple[Changes, ...]:
    """Reductions that hold compute back take no time; members still begin together."""
    instances = held(run).filter("is_held")["instance"].drop_nulls().unique()
    return (changes.scaled(pl.col("instance").is_in(instances.implode()), 0.0),)


def _slower(changes: Changes, factors: pl.DataFrame) -> Changes:
    """Transfers take `factor` times as long, by `instance`."""
    own_ns = changes.own_ns.copy()
    rows = changes.replay.work.with_row_index("row").join(factors, on="instance", validate="m:1")
    own_ns[rows["row"].to_numpy()] *= rows["factor"].to_numpy()
    return changes.timed(own_ns)


def usual_tails(changes: Changes, run: Run, _finding: Finding) -> tuple[Changes, ...]:
    """Transfers in the tail take what is usual for their group, operation and size."""
    factors = tails(run).select("instance", factor=pl.col("usual_ns") / pl.col("transfer_ns"))
    return (_slower(changes, factors),)


def without_repeated_reductions(
    changes: Changes, run: Run, _finding: Finding
) -> tuple[Changes, ...]:
    """Reductions that the last micro-batch repeats take no time; members still begin together."""
    repeated = repeated_reductions(run)["instance"].drop_nulls().unique()
    return (changes.scaled(pl.col("instance").is_in(repeated.implode()), 0.0),)


def instant_host(changes: Changes, _run: Run, _finding: Finding) -> tuple[Changes, ...]:
    """The host takes no time and waits for nothing."""
    return (changes.scaled(IS_HOST, 0.0).without_waits(pl.lit(value=True)),)


def without_host_work(name: str) -> Cure:
    """The host spends no time in a class of its work."""

    def cure(changes: Changes, run: Run, _finding: Finding) -> tuple[Changes, ...]:
        return (changes.without_host({rank: intervals_of(run, rank, name) for rank in run.ranks}),)

    return cure


def without_waits(changes: Changes, _run: Run, finding: Finding) -> tuple[Changes, ...]:
    """No call of the ranks at fault waits for the device."""
    return (changes.without_waits(pl.col("rank").is_in(finding.ranks)),)


def without_launching(longest_ns: int) -> Cure:
    """Launching takes the host no time, as with a graph; named work and longer pauses stay."""

    def cure(changes: Changes, run: Run, _finding: Finding) -> tuple[Changes, ...]:
        return (
            changes.only_host({rank: _not_launching(run, rank, longest_ns) for rank in run.ranks}),
        )

    return cure


def _not_launching(run: Run, rank: int, longest_ns: int) -> Ints:
    """When the host did work with a name of its own, or nothing for long: disjoint, in order."""
    calls = host_calls(run, rank).lazy()
    busy = calls.select("start_ns", "end_ns")
    pauses = gaps(busy).filter(pl.col("end_ns") - pl.col("start_ns") > longest_ns).collect()
    named = intervals_of(run, rank, *CLASSES)
    rows = np.concatenate((pauses.select("start_ns", "end_ns").to_numpy().astype(np.int64), named))
    return rows[np.argsort(rows[:, 0])]
