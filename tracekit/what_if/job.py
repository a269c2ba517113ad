"""The graph of a job from traces of its ranks: hosts, streams, and the collectives between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.derive.averages import breakdowns
from tracekit.derive.clocks import clocks, corrected
from tracekit.what_if.device import RankTimeline, rank_timeline
from tracekit.what_if.schedule import Graph, times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.store import Run

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]


@dataclass(frozen=True)
class JobGraph:
    """A job as a graph: the events of all ranks first, then blocking calls, meetings, the origin.

    `events` has a row an event with `rank` and `own_ns`, what it takes on the device (its transfer,
    where it meets others); `calls` one a blocking call, with its `node`. `edges` has a row an edge:
    `lag_ns` is its constant part, `from_ns` and `to_ns` the host's time in it, `carries` the event
    whose time it takes, -1 for none, and `call` the blocking call that waits by it, -1 for none.
    `steps` holds the averaged windows: rank, device, step, dur_ns, and the nodes at which they
    begin and end.
    """

    graph: Graph
    events: pl.DataFrame
    calls: pl.DataFrame
    edges: Edges
    steps: pl.DataFrame
    is_inferred: bool


@dataclass(frozen=True)
class Edges:
    """What the edges of a job carry, one entry an edge; see `JobGraph`."""

    lag_ns: Floats
    rank: Ints
    from_ns: Ints
    to_ns: Ints
    carries: Ints
    call: Ints

    @property
    def host_ns(self) -> Floats:
        """The host's time in each edge."""
        return (self.to_ns - self.from_ns).astype(np.float64)


@dataclass(frozen=True)
class Scenario:
    """A job with something changed; null fields are as recorded.

    `own_ns` is what each event takes, `host_ns` the host's time in each edge, `cut` the edges that
    no longer hold (a call that does not wait).
    """

    own_ns: Floats | None = None
    host_ns: Floats | None = None
    cut: NDArray[np.bool_] | None = None


def job_graph(run: Run, *, has_stream_waits: bool = True) -> JobGraph:
    """The graph of all ranks of a run."""
    lines = [rank_timeline(run, r, has_stream_waits=has_stream_waits) for r in run.ranks]
    lines = [line for line in lines if line.events.height]
    builder = _Builder(lines, _origins(run, lines))
    return builder.made(_windows(run))


def replayed_steps(job: JobGraph, scenarios: Sequence[Scenario] = (Scenario(),)) -> Floats:
    """Replayed time of each row of `steps`, one column a scenario, ns."""
    reached = replayed(job, scenarios)
    return reached[job.steps["closes"].to_numpy()] - reached[job.steps["opens"].to_numpy()]


def replayed(job: JobGraph, scenarios: Sequence[Scenario]) -> Floats:
    """When each node is reached, one column a scenario, ns."""
    as_recorded = job.events["own_ns"].to_numpy().astype(np.float64)
    own = [as_recorded if each.own_ns is None else each.own_ns for each in scenarios]
    carried = np.stack([np.append(column, 0.0) for column in own], axis=1)  # the last is for -1
    host_ns = job.edges.host_ns
    fixed = np.stack(
        [job.edges.lag_ns + (host_ns if s.host_ns is None else s.host_ns) for s in scenarios], axis=1
    )
    for column, scenario in enumerate(scenarios):
        if scenario.cut is not None:
            fixed[scenario.cut, column] = -np.inf

    def weights(edges: Ints) -> Floats:
        return carried[job.edges.carries[edges]] + fixed[edges]

    return times(job.graph, weights, len(scenarios))


def _origins(run: Run, lines: list[RankTimeline]) -> dict[int, float]:
    """When each rank's recording begins on the common clock, ns; 0 for all where there is none."""
    table = clocks(run)
    rows = pl.DataFrame(
        {"rank": [line.rank for line in lines], "at_ns": [line.host.origin_ns for line in lines]},
        schema={"rank": pl.Int64, "at_ns": pl.Int64},
    ).join(table, on="rank", how="left")
    is_common = rows["is_usable"].all() and rows["component"].n_unique() == 1
    at = rows.select("rank", at=corrected(pl.col("at_ns")) if is_common else pl.col("at_ns"))
    first = at["at"].min() or 0
    return {rank: float(ns - first) if is_common else 0.0 for rank, ns in at.iter_rows()}


def _windows(run: Run) -> pl.DataFrame:
    return (
        breakdowns(run)
        .filter("is_averaged")
        .select("rank", "device", "step", "start_ns", "dur_ns", "is_complete")
    )


class _Builder:
    """Gathers nodes and edges rank by rank."""

    def __init__(self, lines: list[RankTimeline], origins: dict[int, float]) -> None:
        self._lines = lines
        self._origins = origins
        self._edges: list[tuple[Ints, Ints, Floats, Ints, Ints, Ints, Ints, Ints]] = []
        self._rank: Ints | int = -1
        n_events = sum(line.events.height for line in lines)
        self._first_event = dict(
            zip((line.rank for line in lines), _offsets([line.events.height for line in lines]), strict=True)
        )
        n_calls = [len(line.host.starts) for line in lines]
        self._first_call = dict(
            zip((line.rank for line in lines), n_events + _offsets(n_calls), strict=True)
        )
        self._n_nodes = n_events + sum(n_calls)
        events = [line.events.with_columns(rank=pl.lit(line.rank, pl.Int64)) for line in lines]
        self._events = pl.concat(events)
        self._meeting = self._meetings()
        self._origin = self._n_nodes
        self._n_nodes += 1

    def made(self, windows: pl.DataFrame) -> JobGraph:
        for line in self._lines:
            self._add(line)
        steps = self._with_nodes(windows)
        sources, targets, *carried = (np.concatenate(part) for part in zip(*self._edges, strict=True))
        own = (
            pl.col("end_ns") - pl.col("start_ns") - pl.col("waited_ns").fill_null(0)
        ).alias("own_ns")
        return JobGraph(
            graph=Graph(self._n_nodes, sources, targets),
            events=self._events.with_columns(own),
            calls=self._calls(),
            edges=Edges(*carried),
            steps=steps,
            is_inferred=any(line.is_inferred for line in self._lines),
        )

    def _calls(self) -> pl.DataFrame:
        """Blocking calls of all ranks, in order of their nodes."""
        schema = {"rank": pl.Int64, "name": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64}
        return pl.concat(
            [
                pl.DataFrame(
                    {
                        "rank": [line.rank] * len(line.host.starts),
                        "name": line.host.names,
                        "start_ns": line.host.starts,
                        "end_ns": line.host.ends,
                    },
                    schema=schema,
                )
                for line in self._lines
            ]
        )

    def _meetings(self) -> Ints:
        """The node at which the members of each event's collective meet, -1 where it has none."""
        instance = self._events["instance"]
        codes = instance.rank("dense").fill_null(0).cast(pl.Int64).to_numpy() - 1
        n = int(codes.max()) + 1 if len(codes) else 0
        node = np.where(codes >= 0, codes + self._n_nodes, -1)
        self._n_nodes += n
        return node

    def _edge(
        self,
        source: Ints,
        target: Ints,
        lag: Floats | float = 0.0,
        *,
        host: tuple[Ints, Ints] | None = None,
        carries: Ints | int = -1,
        call: Ints | int = -1,
    ) -> None:
        n = len(target)
        since, until = host if host is not None else (0, 0)
        whole = (source, target, lag, self._rank, since, until, carries, call)
        kinds = (np.int64, np.int64, np.float64, *[np.int64] * 5)
        self._edges.append(
            tuple(np.broadcast_to(p, n).astype(k) for p, k in zip(whole, kinds, strict=True))  # type: ignore[arg-type]
        )

    def _add(self, line: RankTimeline) -> None:
        self._rank = line.rank
        n, host = line.events.height, line.host
        first, calls = int(self._first_event[line.rank]), int(self._first_call[line.rank])
        node = first + np.arange(n)
        meeting = self._meeting[first : first + n]
        meets = meeting >= 0
        target = np.where(meets, meeting, node)
        carries = np.where(meets, -1, node)
        follows = np.flatnonzero(line.previous >= 0)
        before, waiting = first + line.previous[follows], line.waiting
        self._edge(before, target[follows], line.gap_ns, carries=carries[follows])
        self._edge(
            self._base(line.base, calls),
            target,
            line.latency_ns + self._origin_ns(line, line.base),
            host=line.released(),
            carries=carries,
        )
        self._edge(
            first + line.awaited, target[waiting], line.gap_ns, carries=carries[waiting]
        )
        self._edge(meeting[meets], node[meets], carries=node[meets])
        self._edge(
            self._base(host.base, calls),
            calls + np.arange(len(host.starts)),
            host.own_ns + self._origin_ns(line, host.base),
            host=host.between(),
        )
        call = calls + host.waiting
        n_events = self._events.height
        self._edge(first + host.awaited, call, host.return_ns, call=call - n_events)

    def _origin_ns(self, line: RankTimeline, base: Ints) -> Floats:
        return np.where(base < 0, self._origins[line.rank], 0.0)

    def _base(self, base: Ints, calls: int) -> Ints:
        return np.where(base < 0, self._origin, calls + base)

    def _with_nodes(self, windows: pl.DataFrame) -> pl.DataFrame:
        """Windows with the nodes of the starts of their first event and of the one that follows.

        A start gets a node of its own: what the event waits for, without the time it takes.
        """
        node = pl.int_range(pl.len(), dtype=pl.Int64).alias("node")
        events = self._events.select("rank", "device", "start_ns", "end_ns", node)
        firsts = events.unique(["rank", "device", "start_ns"], keep="first", maintain_order=True)
        opens = windows.join(
            firsts.rename({"node": "first"}).drop("end_ns"), on=["rank", "device", "start_ns"], how="inner"
        )
        closes = firsts.select("rank", "device", end="start_ns", follows="node")
        lasts = events.sort("end_ns").unique(["rank", "device", "end_ns"], keep="last")
        lasts = lasts.select("rank", "device", end="end_ns", last="node")
        steps = (
            opens.with_columns(end=pl.col("start_ns") + pl.col("dur_ns"))
            .join(closes, on=["rank", "device", "end"], how="left")
            .join(lasts, on=["rank", "device", "end"], how="left")
        )
        begun = sorted({*steps["first"].drop_nulls(), *steps["follows"].drop_nulls()})
        start_node = self._start_nodes(begun)
        return steps.with_columns(
            opens=pl.col("first").replace_strict(start_node, return_dtype=pl.Int64),
            closes=pl.when(pl.col("is_complete") & pl.col("follows").is_not_null())
            .then(pl.col("follows").replace_strict(start_node, default=None, return_dtype=pl.Int64))
            .otherwise("last"),
        ).drop_nulls(["opens", "closes"])

    def _start_nodes(self, events: list[int]) -> dict[int, int]:
        """A node for the start of each event, with the edges of the event less its own time."""
        new = {event: self._n_nodes + i for i, event in enumerate(events)}
        self._n_nodes += len(new)
        if not new:
            return new
        is_wanted = np.full(self._n_nodes, -1, np.int64)
        is_wanted[list(new)] = list(new.values())
        for source, target, lag, rank, since, until, _, _ in list(self._edges):
            at = np.flatnonzero(is_wanted[target] >= 0)
            self._rank = rank[at]
            self._edge(source[at], is_wanted[target[at]], lag[at], host=(since[at], until[at]))
        return new


def _offsets(counts: list[int]) -> Ints:
    return np.concatenate(([0], np.cumsum(counts)))[:-1].astype(np.int64)
