"""The host of one rank: calls that hold it until the device has worked, and its time between them.

All threads that launch work are read as one: a call goes on from the last blocking call that had
returned when it began, on whichever thread, and the time since then is kept. So autograd's thread
follows the main thread and the other way round.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.derive.host_causes import BLOCKING, classed_calls
from tracekit.what_if.schedule import Ints
from tracekit.what_if.streams import Streams
from tracekit.what_if.unseen_waits import freeing_waits, hidden_waits

if TYPE_CHECKING:
    from tracekit.store import Run

SKEW_NS = 20_000
"""What an event may end after the call that waits for it returned: two clocks stamp them."""
FULL_QUEUE = 900
"""Launches in the queue of a stream from which on a long call means that it is full."""
LONG_CALL_NS = 50_000
"""A launch call as long as this, with a full queue, waits for room."""
WHOLE_DEVICE = re.compile(r"(?i)(?:Device|Ctx|Context)Synchronize")


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Blocking calls of a rank by their end (ns): what they go on from and what they wait for.

    `base` is the blocking call before, -1 the beginning, which is at `origin_ns`. `waiting`,
    `awaited` pair calls with device events. `return_ns` is how long a call takes to notice,
    `own_ns` how long one takes that has nothing to wait for. `correlations` are -1 where none was
    recorded.
    """

    starts: Ints
    ends: Ints
    names: NDArray[np.object_]
    correlations: Ints
    base: Ints
    waiting: Ints
    awaited: Ints
    is_inferred: bool
    return_ns: float
    own_ns: float
    origin_ns: int

    def before(self, at: Ints) -> Ints:
        """The last blocking call that had returned at these times, -1 where none had."""
        return np.searchsorted(self.ends, at, side="right") - 1

    def since(self, base: Ints) -> Ints:
        """When blocking calls returned; -1 is the beginning."""
        return np.append(self.ends, self.origin_ns)[base]  # -1 takes the last

    def table(self, rank: int) -> pl.DataFrame:
        """The calls as rows: rank, name, start_ns, end_ns."""
        return pl.DataFrame(
            {"name": self.names, "start_ns": self.starts, "end_ns": self.ends},
            schema={"name": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64},
        ).select(pl.lit(rank, dtype=pl.Int64).alias("rank"), pl.all())

    def between(self) -> tuple[Ints, Ints]:
        """The host's time before each call, since the one that it goes on from."""
        return self.since(self.base), self.starts


def host(run: Run, rank: int, events: pl.DataFrame, until_ns: int | None = None) -> Host:
    """The blocking calls of a rank, tied to its device events (by device, stream and start).

    Calls that begin after `until_ns` are left out: what they wait for is not among the events.
    """
    launching = events["launch_thread"].drop_nulls().unique()
    calls = (
        classed_calls(run, rank)
        .filter(pl.col("thread").is_in(launching.implode()))
        .filter(pl.lit(value=True) if until_ns is None else pl.col("start_ns") <= until_ns)
        .sort("end_ns", "start_ns")
        .collect()
    )
    streams = Streams(events)
    full = _full_queue(calls, streams)
    is_blocking = (calls["class"] == BLOCKING) | calls["correlation"].is_in(full.implode())
    unseen = (hidden_waits(run, rank, calls, events), freeing_waits(calls, streams))
    blocking = pl.concat([calls.filter(is_blocking), *unseen], how="diagonal_relaxed")
    blocking = blocking.sort("end_ns", "start_ns", maintain_order=True)
    starts, ends = blocking["start_ns"].to_numpy(), blocking["end_ns"].to_numpy()
    first = [int(each["start_ns"].to_numpy().min()) for each in (calls, events) if each.height]
    pairs, is_inferred = _awaited(run, rank, blocking, streams, set(full.to_list()))
    waiting, awaited = np.array(pairs, np.int64).reshape(-1, 2).T
    base = np.searchsorted(ends, starts, side="right") - 1
    base = np.minimum(base, np.arange(len(ends)) - 1)  # a call of no length would go on from itself
    last_ns = np.full(len(ends), np.iinfo(np.int64).min)  # of what each call waits for
    np.maximum.at(last_ns, waiting, streams.ends[awaited])
    has_waited = last_ns > starts
    # one that waited for room says nothing of what a call takes that does not wait
    is_full = blocking["correlation"].is_in(full.implode()).fill_null(value=False).to_numpy()
    return Host(
        starts=starts,
        ends=ends,
        names=blocking["name"].to_numpy(),
        correlations=blocking["correlation"].fill_null(-1).to_numpy(),
        base=base,
        waiting=waiting,
        awaited=awaited,
        is_inferred=is_inferred,
        return_ns=median_or_zero(np.maximum((ends - last_ns)[has_waited], 0)),
        own_ns=median_or_zero((ends - starts)[~has_waited & ~is_full]),
        origin_ns=min(first, default=0),
    )


def launch_starts(run: Run, rank: int) -> dict[int, int]:
    """When the call with each correlation began, ns."""
    calls = run.scan("launches", rank).select("correlation", "start_ns").drop_nulls().collect()
    return dict(calls.iter_rows())


def _full_queue(calls: pl.DataFrame, streams: Streams) -> pl.Series:
    """Correlations of launch calls that waited for room in a full queue."""
    long = calls.filter(
        (pl.col("class") != BLOCKING)
        & pl.col("role").is_in(["launch", "graph-launch", "copy"])
        & (pl.col("end_ns") - pl.col("start_ns") >= LONG_CALL_NS)
    )
    found = []
    event_of = streams.event_of()
    for correlation, start_ns in long.select("correlation", "start_ns").drop_nulls().iter_rows():
        event = event_of.get(correlation)
        if event is None:
            continue
        stream = int(streams.number[event])
        n_launched = int(np.searchsorted(streams.launched[stream], start_ns, side="left"))
        n_ended = int(np.searchsorted(streams.ended[stream], start_ns, side="right"))
        if n_launched - n_ended >= FULL_QUEUE:
            found.append(correlation)
    return pl.Series(found, dtype=pl.Int64)


def _awaited(
    run: Run, rank: int, blocking: pl.DataFrame, streams: Streams, full: set[int]
) -> tuple[list[tuple[int, int]], bool]:
    """Pairs of blocking call and event it waits for; and whether one had to be inferred.

    A copy waits for itself; a call with a recorded synchronisation for what that names; one for the
    device for all its streams; any other for what ended last before it returned.
    """
    rows = run.scan("syncs", rank).filter(pl.col("correlation").is_not_null()).collect()
    recorded = {
        row["correlation"]: row for row in rows.iter_rows(named=True) if "Wait" not in row["kind"]
    }
    event_of = streams.event_of()
    launched_at = launch_starts(run, rank) if recorded else {}
    n_streams = len(streams.places)
    pairs: list[tuple[int, int]] = []
    is_inferred = False
    columns = ("start_ns", "end_ns", "name", "correlation", "class", "role", "awaited")
    for call, row in enumerate(blocking.select(columns).iter_rows(named=True)):
        start_ns, end_ns, correlation = row["start_ns"], row["end_ns"], row["correlation"]
        if row["awaited"] is not None:
            is_inferred, found = True, [row["awaited"]]
        elif correlation in full:
            stream = int(streams.number[event_of[correlation]])
            found = [streams.last_ended(stream, start_ns, end_ns)]
            if found[0] < 0 or streams.ends[found[0]] <= start_ns:
                # a wait for another stream took the room
                found = [streams.last_of_all(start_ns, end_ns + SKEW_NS)]
        elif row["role"] == "copy" and correlation in event_of:
            found = [event_of[correlation]]
        elif correlation in recorded:
            found = _named(recorded[correlation], start_ns, streams, launched_at)
        elif WHOLE_DEVICE.search(row["name"]):
            found = [streams.last_launched(stream, start_ns) for stream in range(n_streams)]
        else:
            is_inferred = True
            found = [streams.last_of_all(start_ns, end_ns + SKEW_NS)]
        pairs += [(call, event) for event in found if event >= 0]
    return pairs, is_inferred


def _named(
    row: dict[str, object], start_ns: int, streams: Streams, launched_at: dict[int, int]
) -> list[int]:
    """Last events launched on the stream that a recorded synchronisation names, else on all."""
    at_ns = launched_at.get(row["wait_on_correlation"], start_ns)  # type: ignore[call-overload]
    wanted = row["wait_on_stream"] if row["wait_on_stream"] is not None else row["stream"]
    numbers = [
        stream
        for stream, place in enumerate(streams.places)
        if streams.names[place[0]] == wanted or "Context" in str(row["kind"])
    ]
    return [streams.last_launched(stream, at_ns) for stream in numbers]


def median_or_zero(values: NDArray[Any]) -> float:
    """The median, 0 of nothing: what was never seen takes no time."""
    return float(np.median(values)) if len(values) else 0.0
