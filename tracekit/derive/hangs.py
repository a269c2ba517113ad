"""Who holds a job up, from the flight recorders of its ranks: who waits for whom, to the end.

A rank waits at its first call in a group that has not ended, for the members that never made that
call; at a message for the peer that has no call to match it. Where the call has ended for another
member, all had made it: then the device of the rank that still waits has stopped. A rank that waits
for others is held up itself, so that at fault are those that someone waits for and that wait for
nobody, those whose device stopped, and circles of ranks that wait for each other. Where all members
are in one call and it has ended for none, nobody is at fault: it runs, or its transport failed.

Gloo does not follow states: there the last call of a rank in a group counts as not ended, which is
told apart from one that ended by the members that never made it.

A recorder is a ring: a rank that went on calling may hold no record of the call that it waits in
any more. Then its first call that has not ended is the one after the last that its group's status
says has ended.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.cached import remembered
from tracekit.derive.instances import group_label
from tracekit.schema import FLIGHT_GROUPS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.store import Run


class Fault(StrEnum):
    """Why a rank holds others up."""

    NEVER_CALLED = "never made the call"
    DEVICE_STOPPED = "its device did not end what ended elsewhere"
    NO_DUMP = "left no dump"
    CIRCLE = "waits for ranks that wait for it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """A call at which `ranks` wait, in vain, for `missing` (none: for a device that stopped)."""

    group: str
    operation: str
    sequence: int | None
    ranks: tuple[int, ...]
    missing: tuple[int, ...]
    created_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """What the dumps show: the ranks at fault with why, and the calls that wait.

    `joined` are calls that all members are in and that ended for none.
    """

    faults: dict[int, Fault]
    blocked: tuple[Blocked, ...]
    joined: tuple[Blocked, ...] = ()


@remembered
def records(run: Run) -> pl.DataFrame:
    """All records of all ranks with the group as a person reads it (`label`), by rank and order."""
    found = run.scan_all("flight_records").with_columns(pl.col("members").list.sort())
    return found.with_columns(label=group_label()).sort("rank", "record_id").collect()


@remembered
def threads(run: Run) -> pl.DataFrame:
    """Where the thread that trains was on each rank that seemed to hang: `rank`, `stack`."""
    is_main = pl.col("thread") == "MainThread"
    every = run.scan_all("flight_stacks").with_columns(is_main=is_main).collect()
    return every.sort("rank", "is_main", "thread").group_by("rank", maintain_order=True).last()


@remembered
def progress(run: Run) -> pl.DataFrame:
    """How far each rank got with the collectives of each group, by group and rank.

    Returns:
        `label`, `description`, `members`, `rank`, `enqueued`, `completed` (sequence numbers, null
        where nothing is known), `written_ns` (when the dump's file was last changed).
    """
    calls = records(run).filter(~pl.col("is_message"))
    with_messages = records(run).filter("is_message")["label"].unique()
    done = calls.group_by("label", "rank").agg(
        seen=pl.col("sequence").max(),
        ended=pl.col("sequence").filter(pl.col("is_done").fill_null(value=False)).max(),
    )
    # where a group exchanges messages too, the status counts both together
    counts_both = pl.col("label").is_in(with_messages.implode())
    return (
        run.scan_all("flight_groups")
        .with_columns(pl.col("members").list.sort())
        .with_columns(label=group_label())
        .collect()
        .join(done, on=["label", "rank"], how="left")
        .with_columns(
            pl.when(~counts_both).then(name).alias(name)
            for name in ("last_enqueued", "last_completed")
        )
        .select(
            "label",
            pl.col("group_description").alias("description"),
            "members",
            "rank",
            enqueued=pl.max_horizontal("last_enqueued", "seen"),
            completed=pl.max_horizontal("last_completed", "ended"),
            written_ns="written_ns",
        )
        .sort("label", "rank")
    )


def dumped(run: Run) -> tuple[int, ...]:
    """Ranks whose recorder's dump is here, sorted."""
    return tuple(each.rank for each in run.manifest.captures if FLIGHT_GROUPS.name in each.n_rows)


@remembered
def wrapped(run: Run) -> tuple[int, ...]:
    """Ranks whose ring holds no longer all of their calls, sorted."""
    firsts = records(run).group_by("rank").agg(pl.col("record_id").min())
    return tuple(firsts.filter(pl.col("record_id") > 0)["rank"].sort().to_list())


@remembered
def hang(run: Run) -> Hang:
    """Who holds the job up; nobody where no call waits for anybody."""
    blocked, stopped = _collectives(run)
    joined = tuple(each for each in blocked if _is_joined(run, each))
    blocked += _messages(run)
    waits: dict[int, set[int]] = defaultdict(set)
    for each in blocked:
        for rank in each.ranks:
            waits[rank] |= set(each.missing)
    faults = dict.fromkeys(sorted(stopped), Fault.DEVICE_STOPPED)
    awaited = set().union(*waits.values()) if waits else set()
    for rank in sorted(awaited - stopped):
        if not waits.get(rank):
            faults[rank] = Fault.NEVER_CALLED if rank in dumped(run) else Fault.NO_DUMP
    faults |= dict.fromkeys(_circles(waits, faults), Fault.CIRCLE)
    shown = [each for each in blocked if each.missing or set(each.ranks) & stopped]
    blocked = sorted(shown, key=lambda each: each.created_ns)
    return Hang(faults=faults, blocked=tuple(blocked), joined=joined)


def _is_joined(run: Run, call: Blocked) -> bool:
    """Whether all members are in the call, and it is known to have ended for none."""
    if call.missing:
        return False
    here = records(run).filter(~pl.col("is_message"), label=call.group, sequence=call.sequence)
    if here.is_empty():  # no ring holds it any more
        return False
    members = here["members"][0]
    has_all = members is not None and set(members.to_list()) == set(call.ranks)
    return has_all and here["is_done"].null_count() == 0 and not here["is_done"].any()


def _collectives(run: Run) -> tuple[list[Blocked], set[int]]:
    """First calls that did not end, by group; and ranks whose device stopped."""
    known = {(row["label"], row["rank"]): row for row in progress(run).iter_rows(named=True)}
    last = pl.col("sequence") == pl.col("sequence").max().over("label", "rank")
    heads = (
        records(run)
        .filter(~pl.col("is_message") & pl.col("sequence").is_not_null())
        .filter(~pl.col("is_done").fill_null(~last))
        .sort("sequence")
        .group_by("label", "rank", maintain_order=True)
        .first()
        .pipe(_with_lost_heads, progress(run), wrapped(run))
        .group_by("label", "sequence")
        .agg(
            "rank",
            pl.col("operation").drop_nulls().first(),
            pl.col("members").first(),
            pl.col("created_ns").min(),
        )
    )
    blocked, stopped = [], set()
    for row in heads.iter_rows(named=True):
        label, number, waiting = row["label"], row["sequence"], tuple(sorted(row["rank"]))
        # gloo records no members: then all that have calls of a group of that name
        members = row["members"] or [rank for name, rank in known if name == label]
        reached = {r: known.get((label, r), {}) for r in members}
        ended = {r for r, at in reached.items() if (at.get("completed") or -1) >= number}
        missing = {r for r, at in reached.items() if (at.get("enqueued") or -1) < number} - ended
        if ended:
            stopped |= set(waiting)
        blocked.append(
            Blocked(
                group=label,
                operation=row["operation"] or "not known",
                sequence=number,
                ranks=waiting,
                missing=() if ended else tuple(sorted(missing)),
                created_ns=row["created_ns"] or 0,
            )
        )
    return blocked, stopped


def _with_lost_heads(
    heads: pl.DataFrame, reached: pl.DataFrame, ranks: tuple[int, ...]
) -> pl.DataFrame:
    """Heads of rings that wrapped are the call after the last that ended, if that is known."""
    ended = reached.select("label", "rank", lost=pl.col("completed") + 1)
    is_lost = pl.col("rank").is_in(ranks) & (pl.col("lost") < pl.col("sequence"))
    return heads.join(ended, on=["label", "rank"], how="left", validate="m:1").with_columns(
        sequence=pl.when(is_lost).then("lost").otherwise("sequence"),
        operation=pl.when(~is_lost.fill_null(value=False)).then("operation"),
    )


def _messages(run: Run) -> list[Blocked]:
    """Messages that did not end and whose peer has fewer that match them."""
    pending = records(run).filter(
        pl.col("is_message")
        & ~pl.col("is_done").fill_null(value=True)
        & pl.col("source_rank").is_not_null()
    )
    counts: Counter[tuple[str, int, int, int]] = Counter()
    firsts: dict[tuple[str, int, int, int], int] = {}
    columns = ("label", "source_rank", "destination_rank", "rank", "created_ns")
    for *key, created_ns in pending.select(columns).iter_rows():
        counts[tuple(key)] += 1
        firsts.setdefault(tuple(key), created_ns or 0)
    found = []
    for (label, sender, receiver, rank), n in counts.items():
        peer = receiver if rank == sender else sender
        if n > counts[label, sender, receiver, peer]:
            found.append(
                Blocked(
                    group=f"{sender} → {receiver} of {label}",
                    operation="send" if rank == sender else "recv",
                    sequence=None,
                    ranks=(rank,),
                    missing=(peer,),
                    created_ns=firsts[label, sender, receiver, rank],
                )
            )
    return found


def _circles(waits: dict[int, set[int]], faults: Iterable[int]) -> list[int]:
    """Ranks that wait for each other, from where the waiting leads to nobody else at fault."""
    inward: dict[int, set[int]] = defaultdict(set)
    for rank, others in waits.items():
        for other in others:
            inward[other].add(rank)
    explained, ahead = set(faults), list(faults)
    while ahead:
        for rank in inward[ahead.pop()] - explained:
            explained.add(rank)
            ahead.append(rank)
    left = {rank for rank, others in waits.items() if others} - explained
    while True:  # who is waited for by none of those left leads into a circle, and is no part of it
        outer = {rank for rank in left if not inward[rank] & left}
        if not outer:
            return sorted(left)
        left -= outer
