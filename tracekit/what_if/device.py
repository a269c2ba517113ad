"""The devices of one rank: what each event waits for, and the few constants of the device.

An event starts when its stream is free, its launch has arrived, and what its stream was told to
wait for has ended. How long a launch takes to arrive, and a stream from one event to the next, are
one figure each for the whole device, so that the replay cannot copy what was recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tracekit.derive.activity import activity
from tracekit.derive.kernel_kinds import COMMUNICATION, POINT_TO_POINT
from tracekit.derive.waits import waits_of
from tracekit.what_if.host import Host, host
from tracekit.what_if.schedule import Ints

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.store import Run
    from tracekit.what_if.schedule import Floats

SHORT_GAP_NS = 20_000
"""Between events of a stream that never ran dry; and the most a launch takes to arrive."""
SLACK_NS = 5_000
"""A start later than this after all it is known to wait for has a cause that is not recorded."""
NEAR_NS = 15_000
"""An event of another stream that ended this shortly before may be that cause."""
SKEW_NS = 2_000


@dataclass(frozen=True)
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


def rank_timeline(run: Run, rank: int, *, has_stream_waits: bool = True) -> RankTimeline:
    """All a replay needs of one rank; without stream waits only to show what they explain."""
    events = _events(run, rank)
    calls = host(run, rank, events)
    start, end = events["start_ns"].to_numpy(), events["end_ns"].to_numpy()
    launch_start = events["launch_start_ns"].fill_null(-1).to_numpy()
    launch_end = events["launch_end_ns"].fill_null(-1).to_numpy()
    streams = events.select(pl.struct("device", "stream").rank("dense"))["device"].to_numpy()
    previous = np.arange(len(events), dtype=np.int64) - 1
    previous[np.flatnonzero(np.diff(streams, prepend=-1))] = -1
    is_held = np.isin(events["correlation"].fill_null(-2).to_numpy(), calls.correlations)
    is_own_copy = is_held & (events["class"] == "copy").to_numpy()
    # A call that waits for its own copy releases it where it begins; one that waited for room in a
    # full queue where it returns.
    at = np.where(is_own_copy, launch_start, launch_end)
    base = calls.before(np.where(is_held & ~is_own_copy, launch_end, launch_start))
    is_known = launch_start >= 0
    base[~is_known] = -1
    at = np.where(is_known, at, start)
    free = np.where(previous >= 0, end[previous], np.iinfo(np.int64).min)
    queued_gap = (start - free)[(previous >= 0) & (at + SHORT_GAP_NS < free)]
    gap = _median(queued_gap[(queued_gap >= 0) & (queued_gap < SHORT_GAP_NS)])
    pairs, is_inferred = _stream_waits(run, rank, events, streams)
    if not has_stream_waits:
        pairs = np.empty((0, 2), np.int64)
    ready = _latest(pairs, end, free) + gap
    arrival = (start - at)[is_known & (ready < at) & (start - at < SHORT_GAP_NS)]
    latency = _median(arrival)
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


def _events(run: Run, rank: int) -> pl.DataFrame:
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
    return (
        activity(run, rank)
        .join(met, on=place, how="left", validate="m:1")
        .sort("device", "stream", "start_ns", "end_ns")
        .collect()
    )


def _stream_waits(run: Run, rank: int, events: pl.DataFrame, streams: Ints) -> tuple[Ints, bool]:
    """Events and what their stream was told to wait for, from recorded waits or from the calls.

    A call does not say which streams it ties: it binds the stream of the next launch on its thread
    to the last work launched before on another one. Without such calls only a collective is known
    to wait, for what was launched before it on the thread.
    """
    calls = (
        run.scan("launches", rank)
        .filter(pl.col("role") == "stream-wait")
        .select("thread", "start_ns")
        .sort("start_ns")
        .collect()
    )
    order = np.argsort(events["launch_start_ns"].fill_null(-1).to_numpy(), kind="stable")
    order = order[events["launch_start_ns"].is_not_null().to_numpy()[order]]
    launched = events["launch_start_ns"].to_numpy()[order]
    threads = events["launch_thread"].fill_null(-1).to_numpy()[order]
    start, end = events["start_ns"].to_numpy(), events["end_ns"].to_numpy()
    pairs: list[tuple[int, int]] = []
    if calls.height:
        at = np.searchsorted(launched, calls["start_ns"].to_numpy(), side="left")
        for place, thread in zip(at.tolist(), calls["thread"].to_list(), strict=True):
            bound = _next_on(threads, place, thread)
            if bound is not None:
                pairs += _last_elsewhere(order, streams, place, bound)
    else:
        is_call = (events["class"] == COMMUNICATION).to_numpy()[order]
        for place in np.flatnonzero(is_call).tolist():
            pairs += _last_elsewhere(order, streams, place, place)
    found = np.array(pairs, np.int64).reshape(-1, 2)
    is_possible = start[found[:, 0]] >= end[found[:, 1]] - SKEW_NS
    return found[is_possible], True


def _next_on(threads: Ints, place: int, thread: int) -> int | None:
    """Place of the next launch of a thread, a few launches on at most."""
    ahead = np.flatnonzero(threads[place : place + 64] == thread)
    return place + int(ahead[0]) if len(ahead) else None


def _last_elsewhere(order: Ints, streams: Ints, place: int, bound: int) -> list[tuple[int, int]]:
    """The bound event with the last one launched before `place` on another stream."""
    own = streams[order[bound]]
    before = order[max(0, place - 256) : place]
    others = np.flatnonzero(streams[before] != own)
    return [(int(order[bound]), int(before[others[-1]]))] if len(others) else []


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


def _median(values: NDArray[Any]) -> float:
    return float(np.median(values)) if len(values) else 0.0
