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
from tracekit.derive.contention import contended
from tracekit.derive.copy_in_out import series_copies
from tracekit.derive.gradient_sync import repeated_reductions
from tracekit.derive.held_compute import held
from tracekit.derive.host_causes import host_calls
from tracekit.derive.host_kinds import CLASSES
from tracekit.derive.intervals import gaps
from tracekit.derive.peer_transfers import against_peers, of_groups, of_links
from tracekit.derive.small_calls import small_calls
from tracekit.derive.transfer_tails import tails
from tracekit.derive.uneven_exchanges import exchanges
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


def without_transfers_of_groups(
    changes: Changes, _run: Run, finding: Finding
) -> tuple[Changes, ...]:
    """Transfers of the groups named take no time; members still begin together."""
    is_theirs = pl.col("group").is_in(finding.groups) & (pl.col("class") == "communication")
    return (changes.scaled(is_theirs, 0.0),)


def groups_like_peers(changes: Changes, run: Run, finding: Finding) -> tuple[Changes, ...]:
    """Collectives of the groups at fault take what those of peers do, none longer than now."""
    placed = of_groups(run)
    return (_as_usual(changes, placed, against_peers(placed), finding),)


def links_like_peers(changes: Changes, run: Run, finding: Finding) -> tuple[Changes, ...]:
    """Messages over the link at fault take what those of peers do, none longer than now."""
    placed = of_links(run)
    return (_as_usual(changes, placed, against_peers(placed), finding),)


def transfers_as_measured(changes: Changes, run: Run, finding: Finding) -> tuple[Changes, ...]:
    """Collectives of the groups at fault have the bandwidth that nccl-tests measured, or more."""
    known = against_baselines(run).rename({"group": "place"})
    return (_as_usual(changes, of_groups(run), known, finding),)


def _as_usual(
    changes: Changes, placed: pl.DataFrame, known: pl.DataFrame, finding: Finding
) -> Changes:
    """Transfers of the places at fault take `usual_ns` of what is known, none longer than now."""
    same = ("place", "operation", "size_bytes")
    factor = pl.min_horizontal(pl.col("usual_ns") / pl.col("p50_ns"), 1.0)
    factors = known.filter(pl.col("place").is_in(finding.groups)).select(*same, factor=factor)
    return _slower(
        changes, placed.join(factors, on=same, validate="m:1").select("instance", "factor")
    )


def bucketed(changes: Changes, run: Run, _finding: Finding) -> tuple[Changes, ...]:
    """Small collectives take their bytes, and their part of the start of a bucket."""
    factors = (
        small_calls(run)
        .group_by("instance")
        .agg(factor=(pl.col("merged_ns") / pl.col("took_ns")).max())
    )
    return (_slower(changes, factors),)


def even_exchanges(changes: Changes, run: Run, _finding: Finding) -> tuple[Changes, ...]:
    """Members of an all-to-all each take what the mean of its bytes takes the fullest one."""
    share = pl.col("mean_bytes") / pl.col("max_bytes")
    shares = exchanges(run).group_by("instance").agg(share=share.first())
    own_ns = changes.own_ns.copy()
    rows = (
        changes.replay.work.with_row_index("row")
        .with_columns(own_ns=pl.Series(own_ns))
        .join(shares, on="instance", validate="m:1")
        .with_columns(even_ns=pl.col("own_ns").max().over("instance") * pl.col("share"))
    )
    own_ns[rows["row"].to_numpy()] = rows["even_ns"].to_numpy()
    return (changes.timed(own_ns),)


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


def transfers_alone(changes: Changes, run: Run, finding: Finding) -> tuple[Changes, ...]:
    """Transfers beside what the finding names take what they take alone, none longer than now."""
    factor = pl.min_horizontal(pl.col("alone_ns") / pl.col("transfer_ns"), 1.0)
    rows = contended(run).filter(beside=finding.subject).select("instance", factor=factor)
    return (_slower(changes, rows),)


def without_series_copies(changes: Changes, run: Run, _finding: Finding) -> tuple[Changes, ...]:
    """Copies in series with collectives take no time."""
    place = ["rank", "device", "stream", "start_ns"]
    copies = series_copies(run).select(place)
    rows = changes.replay.work.with_row_index("row").join(copies, on=place, how="semi")
    own_ns = changes.own_ns.copy()
    own_ns[rows["row"].to_numpy()] = 0.0
    return (changes.timed(own_ns),)


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
