"""The graph of a job from traces of its ranks: hosts, streams, and the collectives between them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.derive.activity import has_device_events
from tracekit.derive.cached import remembered
from tracekit.derive.clocks import clocks, corrected
from tracekit.derive.stages import stages
from tracekit.what_if.device import rank_timeline
from tracekit.what_if.replay import HOST, Replay
from tracekit.what_if.schedule import Graph
from tracekit.what_if.usual import with_usual
from tracekit.what_if.windows import replayed_windows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.store import Run
    from tracekit.what_if.device import RankTimeline
    from tracekit.what_if.schedule import Floats, Ints

_DUR_NS = pl.col("end_ns") - pl.col("start_ns")
MAX_REPAIRS = 3
MAX_EVENTS = 2_000_000
"""A graph of so many device events takes 8 GB; analyse fewer ranks (`--ranks`)."""

log = logging.getLogger(__name__)


@remembered
def job(run: Run) -> Replay | None:
    """The replay of a run with device events; None of others."""
    return made(run)


@remembered
def alone(run: Run) -> Replay | None:
    """The replay in which each rank waits in collectives as long as it did, whatever others do."""
    return made(run, is_alone=True)


def made(run: Run, *, has_stream_waits: bool = True, is_alone: bool = False) -> Replay | None:
    """The replay of a run, or None; without stream waits only to show what they explain.

    The rows of `work` are the same with and without `is_alone`.
    """
    if not has_device_events(run):  # a thread that computes and waits shows no dependencies
        return None
    windows = replayed_windows(run)
    if not windows["is_averaged"].any():
        return None
    ends = dict(windows.group_by("rank").agg(pl.col("end_ns").max()).iter_rows())
    lines, n_events = [], 0
    for rank in run.ranks:
        line = rank_timeline(run, rank, ends.get(rank), has_stream_waits=has_stream_waits)
        lines += [line] if line.events.height else []
        n_events += line.events.height
        if n_events > MAX_EVENTS:
            log.warning("not replayed: more than %d device events in two steps", MAX_EVENTS)
            return None
    if not lines:
        return None
    events = pl.concat([e.events.with_columns(rank=pl.lit(e.rank, pl.Int64)) for e in lines])
    events, origins = _met(events), _origins(run, lines)
    events = _without(events, []) if is_alone else events
    for _ in range(MAX_REPAIRS):
        builder = _Builder(lines, events, origins)
        found = builder.made(windows, stages(run))
        circle = found.graph.circle
        if not len(circle):
            return found if found.steps.height else None
        events = _without(events, builder.instances_at(circle))
    return None


def _without(events: pl.DataFrame, instances: list[int]) -> pl.DataFrame:
    """Take collectives that hold each other up for work of their rank alone: mismatched, they are.

    Without any in the circle, all are.
    """
    is_wrong = pl.col("instance").is_in(instances) if instances else pl.lit(value=True)
    return events.with_columns(
        instance=pl.when(~is_wrong).then("instance"), waited_ns=pl.when(~is_wrong).then("waited_ns")
    )


def _origins(run: Run, lines: list[RankTimeline]) -> dict[int, float]:
    """When each rank's recording begins on the common clock, ns; 0 for all where there is none."""
    rows = pl.DataFrame(
        {"rank": [line.rank for line in lines], "at_ns": [line.host.origin_ns for line in lines]},
        schema={"rank": pl.Int64, "at_ns": pl.Int64},
    ).join(clocks(run), on="rank", how="left")
    if not rows["is_usable"].all() or rows["component"].n_unique() > 1:
        return dict.fromkeys(rows["rank"].to_list(), 0.0)
    at = rows.select("rank", at=corrected(pl.col("at_ns")))
    return dict(at.select("rank", (pl.col("at") - pl.col("at").min()).cast(pl.Float64)).iter_rows())


def _met(events: pl.DataFrame) -> pl.DataFrame:
    """Null the instance of collectives whose waits are not known: they take what they took.

    Both ends of a message wait for the later, so that the shorter one shows its transfer.
    """
    is_pair = pl.col("is_message") & (pl.col("instance").len().over("instance") == 2)
    later_ns = pl.when(is_pair).then(_DUR_NS - _DUR_NS.min().over("instance"))
    return events.with_columns(waited_ns=pl.coalesce("waited_ns", later_ns)).with_columns(
        instance=pl.when(pl.col("waited_ns").is_not_null()).then("instance")
    )


class _Builder:
    """Gathers nodes and edges rank by rank.

    Nodes: the events of all ranks, blocking calls, meetings, the origin, starts of events that
    begin a step. Work: the events, then the host's time in each edge that has some.
    """

    def __init__(
        self, lines: list[RankTimeline], events: pl.DataFrame, origins: dict[int, float]
    ) -> None:
        self._lines, self._events, self._origins = lines, events, origins
        self._edges: list[tuple[NDArray[np.generic], ...]] = []
        self._host: list[pl.DataFrame] = []
        self._n_work = events.height
        ranks = [line.rank for line in lines]
        n_calls = [len(line.host.starts) for line in lines]
        n_events = [line.events.height for line in lines]
        self._first_event = dict(zip(ranks, _offsets(n_events), strict=True))
        self._first_call = dict(zip(ranks, events.height + _offsets(n_calls), strict=True))
        self._first_meeting = events.height + sum(n_calls)
        codes = events["instance"].rank("dense").fill_null(0).cast(pl.Int64).to_numpy() - 1
        self._meeting = np.where(codes >= 0, codes + self._first_meeting, -1)
        self._origin = self._first_meeting + int(codes.max()) + 1
        self._n_nodes = self._origin + 1

    def made(self, windows: pl.DataFrame, places: pl.DataFrame) -> Replay:
        """The replay of the averaged windows; work is placed in the others too."""
        for line in self._lines:
            self._add(line)
        steps = self._with_nodes(windows.filter("is_averaged"))
        sources, targets, lag, carries, host, call = (
            np.concatenate(part) for part in zip(*self._edges, strict=True)
        )
        own = (_DUR_NS - pl.col("waited_ns").fill_null(0)).alias("own_ns")
        work = pl.concat([self._events.with_columns(own), *self._host], how="diagonal_relaxed")
        return Replay(
            graph=Graph(self._n_nodes, sources, targets),
            work=with_usual(work, windows, places),
            lag_ns=lag,
            carries=carries,
            host=host,
            call=call,
            steps=steps,
            calls=pl.concat([line.host.table(line.rank) for line in self._lines]),
            is_inferred=any(line.is_inferred for line in self._lines),
            launched_share=1 - self._events["launch_start_ns"].null_count() / self._events.height,
        )

    def instances_at(self, nodes: Ints) -> list[int]:
        """Collectives whose meetings are among the nodes."""
        is_there = np.isin(self._meeting, nodes) & (self._meeting >= 0)
        return self._events["instance"].filter(pl.Series(is_there)).unique().to_list()

    def _edge(
        self,
        source: Ints,
        target: Ints,
        lag: Floats | float = 0.0,
        *,
        carries: Ints | int = -1,
        host: Ints | int = -1,
        call: Ints | int = -1,
    ) -> None:
        parts = (source, target, lag, carries, host, call)
        kinds = (np.int64, np.int64, np.float64, np.int64, np.int64, np.int64)
        self._edges.append(
            tuple(
                np.broadcast_to(part, len(target)).astype(kind)
                for part, kind in zip(parts, kinds, strict=True)
            )
        )

    def _add(self, line: RankTimeline) -> None:
        n, host, waiting = line.events.height, line.host, line.waiting
        first, calls = int(self._first_event[line.rank]), int(self._first_call[line.rank])
        node = first + np.arange(n)
        meeting = self._meeting[first : first + n]
        meets = meeting >= 0
        target, carries = np.where(meets, meeting, node), np.where(meets, -1, node)
        follows = np.flatnonzero(line.previous >= 0)
        before = first + line.previous[follows]
        self._edge(before, target[follows], line.gap_ns, carries=carries[follows])
        launched = self._host_work(line.rank, *line.released())
        lag = line.latency_ns + self._origin_ns(line, line.base)
        self._edge(self._base(line.base, calls), target, lag, carries=carries, host=launched)
        self._edge(first + line.awaited, target[waiting], line.gap_ns, carries=carries[waiting])
        self._edge(meeting[meets], node[meets], carries=node[meets])
        reached = self._host_work(line.rank, *host.between())
        lag = host.own_ns + self._origin_ns(line, host.base)
        place = calls + np.arange(len(host.starts))
        self._edge(self._base(host.base, calls), place, lag, host=reached)
        place = calls + host.waiting
        self._edge(first + host.awaited, place, host.return_ns, call=place - self._events.height)

    def _host_work(self, rank: int, since: Ints, until: Ints) -> Ints:
        """Rows of work for the host's time between; returns their numbers."""
        rows = pl.DataFrame({"start_ns": since, "end_ns": until}).with_columns(
            rank=pl.lit(rank, dtype=pl.Int64),
            own_ns=pl.col("end_ns") - pl.col("start_ns"),
            **{"class": pl.lit(HOST), "kind": pl.lit(HOST), "name": pl.lit(HOST)},
        )
        self._host.append(rows)
        self._n_work += len(until)
        return np.arange(self._n_work - len(until), self._n_work)

    def _origin_ns(self, line: RankTimeline, base: Ints) -> Floats:
        return np.where(base < 0, self._origins[line.rank], 0.0)

    def _base(self, base: Ints, calls: int) -> Ints:
        return np.where(base < 0, self._origin, calls + base)

    def _with_nodes(self, windows: pl.DataFrame) -> pl.DataFrame:
        """Windows with the nodes of the starts of their first event and of the one that follows.

        The last window ends with its last event.
        """
        node = pl.int_range(pl.len(), dtype=pl.Int64).alias("node")
        events = self._events.select("rank", "device", "start_ns", "end_ns", node)
        place = ["rank", "device"]
        firsts = events.unique([*place, "start_ns"], keep="first", maintain_order=True)
        lasts = events.unique([*place, "end_ns"], keep="last", maintain_order=True)
        found = (
            windows.with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns"))
            .join(firsts.select(*place, "start_ns", first="node"), on=[*place, "start_ns"])
            .join(
                firsts.select(*place, end_ns="start_ns", follows="node"),
                on=[*place, "end_ns"],
                how="left",
            )
            .join(lasts.select(*place, "end_ns", last="node"), on=[*place, "end_ns"], how="left")
        )
        start_of = self._starts(sorted({*found["first"], *found["follows"].drop_nulls()}))
        starts = pl.DataFrame(
            {"event": list(start_of), "at": list(start_of.values())},
            schema={"event": pl.Int64, "at": pl.Int64},
        )
        return (
            found.join(starts.select(first="event", opens="at"), on="first", how="left")
            .join(starts.select(follows="event", next="at"), on="follows", how="left")
            .with_columns(
                closes=pl.when(pl.col("is_complete"))
                .then(pl.coalesce("next", "last"))
                .otherwise("last")
            )
            .drop_nulls(["opens", "closes"])
            .select("rank", "device", "step", "start_ns", "dur_ns", "opens", "closes")
        )

    def _starts(self, events: list[int]) -> dict[int, int]:
        """A node for the start of each event, with the edges of the event less its own time."""
        new = {event: self._n_nodes + i for i, event in enumerate(events)}
        stands_for = np.full(self._n_nodes, -1, np.int64)
        stands_for[events] = list(new.values())
        self._n_nodes += len(new)
        # of one that meets others its own arrival is asked for, not the meeting
        for rank, first in self._first_event.items():
            self._copy_edges(rank, int(first), stands_for)
        return new

    def _copy_edges(self, rank: int, first: int, stands_for: Ints) -> None:
        """Edges into events of one rank again, into the nodes that stand for their starts."""
        line = next(line for line in self._lines if line.rank == rank)
        calls = int(self._first_call[rank])
        wanted = stands_for[first : first + line.events.height]
        chosen = np.flatnonzero(wanted >= 0)
        if not len(chosen):
            return
        follows = chosen[line.previous[chosen] >= 0]
        self._edge(first + line.previous[follows], wanted[follows], line.gap_ns)
        since, until = line.released()
        launched = self._host_work(rank, since[chosen], until[chosen])
        lag = (line.latency_ns + self._origin_ns(line, line.base))[chosen]
        self._edge(self._base(line.base[chosen], calls), wanted[chosen], lag, host=launched)
        waits = np.flatnonzero(wanted[line.waiting] >= 0)
        self._edge(first + line.awaited[waits], wanted[line.waiting[waits]], line.gap_ns)


def _offsets(counts: list[int]) -> Ints:
    return np.concatenate(([0], np.cumsum(counts)))[:-1].astype(np.int64)
