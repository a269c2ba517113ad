"""The devices of one rank: what each event waits for, and the few constants of the device.

An event starts when its stream is free, its launch has arrived, and what its stream was told to
wait for has ended. How long a launch takes to arrive, and a stream from one event to the next, are
one figure each for the whole device, so that the replay cannot copy what was recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.derive.activity import activity
from tracekit.derive.kernel_kinds import COMMUNICATION, POINT_TO_POINT
from tracekit.derive.waits import waits_of
from tracekit.what_if.host import Host, host, launch_starts, median_or_zero
from tracekit.what_if.schedule import Ints
from tracekit.what_if.streams import numbered

if TYPE_CHECKING:
    from tracekit.store import Run
    from tracekit.what_if.schedule import Bools, Floats

SHORT_GAP_NS = 20_000
"""Between events of a stream that never ran dry; and the most a launch takes to arrive."""
SLACK_NS = 5_000
"""A start later than this after all it is known to wait for has a cause that is not recorded."""
NEAR_NS = 15_000
"""An event of another stream that ended this shortly before may be that cause."""
SKEW_NS = 2_000
"""What times of two events of a device may be off by."""
MAX_AHEAD, MAX_BEHIND = 64, 256
"""How many launches a wait is looked for ahead and behind a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTimeline:
    """What one rank's devices and host did, as a replay takes it; indices are rows of `events`.

    `events` are sorted by device, stream and start. `previous` is the event before on the stream,
    -1 for its first; `base` the blocking call its launch goes on from and `at_ns` when the host had
    launched it. `waiting`, `awaited` pair events of different streams. `latency_ns` is how long
    a launch takes to arrive, `gap_ns` a stream from one event to the next.
    """

    rank: int
    events: pl.DataFrame
    host: Host
    previous: Ints
    base: Ints
    at_ns: Ints
    waiting: Ints
    awaited: Ints
    is_inferred: bool
    latency_ns: float
    gap_ns: float

    def released(self) -> tuple[Ints, Ints]:
        """The host's time before each launch, since the blocking call that it goes on from."""
        return self.host.since(self.base), self.at_ns


def rank_timeline(
    run: Run, rank: int, until_ns: int | None = None, *, has_stream_waits: bool = True
) -> RankTimeline:
    """All a replay needs of one rank, up to the first event that begins after `until_ns`.

    Without stream waits only to show what they explain.
    """
    events = _events(run, rank, until_ns)
    calls = host(run, rank, events, until_ns)
    start, end = events["start_ns"].to_numpy(), events["end_ns"].to_numpy()
    streams = numbered(events)
    previous = np.arange(len(events), dtype=np.int64) - 1
    previous[np.flatnonzero(np.diff(streams, prepend=-1))] = -1
    free = np.where(previous >= 0, end[previous], np.iinfo(np.int64).min)
    base, at, is_known = _launched(events, calls)
    queued_gap = (start - free)[(previous >= 0) & (at + SHORT_GAP_NS < free)]
    gap = median_or_zero(queued_gap[(queued_gap >= 0) & (queued_gap < SHORT_GAP_NS)])
    pairs, is_inferred = _stream_waits(run, rank, events, streams)
    if not has_stream_waits:
        pairs = np.empty((0, 2), np.int64)
    ready = _latest(pairs, end, free) + gap
    arrival = (start - at)[is_known & (ready < at) & (start - at < SHORT_GAP_NS)]
    latency = median_or_zero(arrival)
    at = np.where(is_known, at, at - round(latency))
    ready = np.maximum(ready, at + latency)
    if has_stream_waits:
        seen = _seen_waits(start, end, at, streams, start - ready)
        is_inferred = is_inferred or len(seen) > 0
        pairs = np.concatenate((pairs, seen))
    return RankTimeline(
        rank=rank,
        events=events,
        host=calls,
        previous=previous,
        base=base,
        at_ns=at,
        waiting=pairs[:, 0],
        awaited=pairs[:, 1],
        is_inferred=is_inferred or calls.is_inferred,
        latency_ns=latency,
        gap_ns=gap,
    )


def _launched(events: pl.DataFrame, calls: Host) -> tuple[Ints, Ints, Bools]:
    """What call each launch goes on from, when the host had launched it, and if that is known.

    A call that waits for its own copy releases it where it begins; one that waited for room in a
    full queue where it returns. What has no launch stays where it began.
    """
    launch_start = events["launch_start_ns"].fill_null(-1).to_numpy()
    launch_end = events["launch_end_ns"].fill_null(-1).to_numpy()
    is_held = np.isin(events["correlation"].fill_null(-2).to_numpy(), calls.correlations)
    is_own_copy = is_held & (events["class"] == "copy").to_numpy()
    at = np.where(is_own_copy, launch_start, launch_end)
    base = calls.before(np.where(is_held & ~is_own_copy, launch_end, launch_start))
    is_known = launch_start >= 0
    base[~is_known] = -1
    return base, np.where(is_known, at, events["start_ns"].to_numpy()), is_known


def _events(run: Run, rank: int, until_ns: int | None) -> pl.DataFrame:
    """Device events with the collective each is part of, and how long it waited in it, if known."""
    place = ["device", "stream", "start_ns"]
    is_message = pl.col("operation").is_in(list(POINT_TO_POINT)).fill_null(value=False)
    met = (
        waits_of(run, rank)
        .filter(pl.col("instance").is_not_null())
        .select(
            pl.col("device").fill_null(0),
            "stream",
            "start_ns",
            "instance",
            "operation",
            "group",
            "bytes_in",
            group_size="n_expected",
            waited_ns=pl.coalesce("aligned_wait_ns", "wait_ns"),
            is_message=is_message,
        )
        .unique(place)
    )
    is_wanted = pl.lit(value=True) if until_ns is None else pl.col("start_ns") <= until_ns
    return (
        activity(run, rank)
        .filter(is_wanted)
        .join(met, on=place, how="left", validate="m:1")
        .sort("device", "stream", "start_ns", "end_ns")
        .collect()
    )


def _stream_waits(run: Run, rank: int, events: pl.DataFrame, streams: Ints) -> tuple[Ints, bool]:
    """Events and what their stream was told to wait for; and whether that had to be inferred.

    Recorded waits name both streams. A call alone does not: it binds the stream of the next launch
    on its thread to the last work launched before on another one. Without any call a collective is
    known to wait for what was launched before it on another stream, and what follows an operator
    that waits for it (wait_tensor) on the thread waits for the collective. What the times
    contradict is left out.
    """
    start, end = events["start_ns"].to_numpy(), events["end_ns"].to_numpy()
    launches = _Launches(events, streams)
    recorded = run.scan("syncs", rank).filter(pl.col("kind").str.contains("Wait")).collect()
    calls = run.scan("launches", rank).filter(pl.col("role") == "stream-wait")
    waits = calls.select("thread", "start_ns").sort("start_ns").collect()
    if recorded.height:
        pairs = _recorded_waits(run, rank, recorded, launches)
    elif waits.height:
        pairs = [
            pair
            for thread, at_ns in waits.iter_rows()
            for pair in launches.bound(launches.place(at_ns), thread)
        ]
    else:
        pairs = _waits_of_collectives(run, rank, events, launches)
    found = np.array(pairs, np.int64).reshape(-1, 2)
    is_possible = start[found[:, 0]] >= end[found[:, 1]] - SKEW_NS
    return found[is_possible], recorded.is_empty()


class _Launches:
    """Device events in the order of their launches, to ask what came before and after a call."""

    def __init__(self, events: pl.DataFrame, streams: Ints) -> None:
        launched = events["launch_start_ns"].fill_null(-1).to_numpy()
        order = np.argsort(launched, kind="stable")
        self.order: Ints = order[launched[order] >= 0]
        self.launched: Ints = launched[self.order]
        self.threads: Ints = events["launch_thread"].fill_null(-1).to_numpy()[self.order]
        self.streams = streams[self.order]
        self.numbers: Ints = events["stream"].fill_null(-1).to_numpy()[self.order]

    def place(self, at_ns: int) -> int:
        """The first launch that does not come before a time."""
        return int(np.searchsorted(self.launched, at_ns, side="left"))

    def bound(self, place: int, thread: int) -> list[tuple[int, int]]:
        """The next event launched on a thread with the last one before `place` elsewhere."""
        waiting = self.next_on(place, thread)
        return [] if waiting is None else self.last_elsewhere(place, waiting)

    def next_on(self, place: int, thread: int) -> int | None:
        """The next launch of a thread, a few launches on at most."""
        ahead = np.flatnonzero(self.threads[place : place + MAX_AHEAD] == thread)
        return place + int(ahead[0]) if len(ahead) else None

    def last_elsewhere(self, place: int, bound: int) -> list[tuple[int, int]]:
        """The event launched at `bound` with the last one before `place` on another stream."""
        first = max(0, place - MAX_BEHIND)
        others = np.flatnonzero(self.streams[first:place] != self.streams[bound])
        if not len(others):
            return []
        return [(int(self.order[bound]), int(self.order[first + others[-1]]))]

    def on_stream(self, number: int, place: int, *, is_before: bool) -> int | None:
        """The last event of a stream launched before a place, or the first one from there on."""
        places = np.flatnonzero(self.numbers == number)
        at = int(np.searchsorted(places, place, side="left")) - is_before
        return int(self.order[places[at]]) if 0 <= at < len(places) else None


def _recorded_waits(
    run: Run, rank: int, rows: pl.DataFrame, launches: _Launches
) -> list[tuple[int, int]]:
    """Pairs from rows that name the waiting stream, the other, and the call that marked it."""
    called_at = launch_starts(run, rank)
    pairs = []
    for row in rows.iter_rows(named=True):
        at_ns = called_at.get(row["correlation"], row["start_ns"])
        marked_ns = called_at.get(row["wait_on_correlation"], at_ns)
        waiting = launches.on_stream(row["stream"], launches.place(at_ns), is_before=False)
        awaited = launches.on_stream(
            row["wait_on_stream"], launches.place(marked_ns), is_before=True
        )
        if waiting is not None and awaited is not None and row["wait_on_stream"] is not None:
            pairs.append((waiting, awaited))
    return pairs


def _waits_of_collectives(
    run: Run, rank: int, events: pl.DataFrame, launches: _Launches
) -> list[tuple[int, int]]:
    """Collectives wait for what was launched before; what follows a waiting operator, for them."""
    is_call = (events["class"] == COMMUNICATION).to_numpy()[launches.order]
    places = np.flatnonzero(is_call)
    pairs = [pair for at in places.tolist() for pair in launches.last_elsewhere(at, at)]
    waits = (
        run.scan("cpu_ops", rank)
        .filter(pl.col("name").str.contains(r"wait_tensor|c10d::wait|Work::wait"))
        .select("thread", "start_ns")
        .sort("start_ns")
        .collect()
    )
    for thread, at_ns in waits.iter_rows():
        place = launches.place(at_ns)
        waiting, before = launches.next_on(place, thread), places[places < place]
        if waiting is not None and len(before):
            awaited = int(before[-1])
            if launches.streams[waiting] != launches.streams[awaited]:
                pairs.append((int(launches.order[waiting]), int(launches.order[awaited])))
    return pairs


def _seen_waits(start: Ints, end: Ints, at: Ints, streams: Ints, late: Floats) -> Ints:
    """Waits that no call shows: an event that started right after one of another stream had ended.

    Only for starts that nothing else explains.
    """
    by_end = np.argsort(end, kind="stable")
    ends = end[by_end]
    pairs = []
    for event in np.flatnonzero(late > SLACK_NS).tolist():
        first = int(np.searchsorted(ends, start[event] - NEAR_NS, side="left"))
        last = int(np.searchsorted(ends, start[event] + SKEW_NS, side="right"))
        near = by_end[first:last]
        near = near[(streams[near] != streams[event]) & (at[near] <= at[event])]
        if len(near):
            pairs.append((event, int(near[-1])))
    return np.array(pairs, np.int64).reshape(-1, 2)


def _latest(pairs: Ints, end: Ints, free: Ints) -> Floats:
    """When stream and recorded waits let each event go, without the gap."""
    ready = free.astype(np.float64)
    np.maximum.at(ready, pairs[:, 0], end[pairs[:, 1]].astype(np.float64))
    return ready
