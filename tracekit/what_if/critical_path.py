"""What the steps of a job wait for in the end: the longest path through its replay, and slack.

The path is followed back from the last event of the averaged steps to where they began: at each
node along the edge that was last to arrive. Steps that were recorded one by one, each from 0, have
a path each. Slack of work is how much later it could end without its path ending later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.what_if.replay import Scenario
from tracekit.what_if.schedule import latest

if TYPE_CHECKING:
    from tracekit.what_if.replay import Replay
    from tracekit.what_if.schedule import Floats, Ints

COLUMNS = ("rank", "class", "type", "name", "start_ns", "end_ns")
LATENCY = "latency"
"""Class of what a path takes beside work: launches to arrive, streams to go on, calls to return."""


def critical_path(replay: Replay, scenario: Scenario | None = None) -> pl.DataFrame:
    """Parts of the path through the averaged steps, in order of time.

    Returns:
        `COLUMNS`, times as recorded, and `on_path_ns`, what it takes in the scenario. Latency has
        no name and no times, and the rank of the work before it.

    Raises:
        InputError: operations wait for each other in a circle.
    """
    asked = scenario or Scenario(replay.own_ns)
    reached = replay.recorded_ns if scenario is None else replay.reached_ns([asked])[:, 0]
    edge_ns = replay.edge_ns(asked.own_ns)
    if asked.cut is not None:
        edge_ns[asked.cut] = -np.inf
    edges, before_ns = _edges_back(replay, reached, edge_ns)
    return (
        _parts(replay, asked, edges)
        .filter(pl.col("on_path_ns") != 0)
        .sort("place", maintain_order=True)
        .with_columns(
            pl.col("type").fill_null(LATENCY), pl.col("rank").forward_fill().backward_fill()
        )
        .pipe(_clipped, before_ns)
        .select(*COLUMNS, "on_path_ns")
    )


def _parts(replay: Replay, scenario: Scenario, edges: Ints) -> pl.DataFrame:
    """What the edges of a path take, by their `place` on it: the host, other work, latency."""
    parts = [
        pl.DataFrame({"place": np.arange(len(edges)), "row": rows[edges]})
        for rows in (replay.host, replay.carries)
    ]
    lag = pl.DataFrame(
        {"place": np.arange(len(edges)), "on_path_ns": replay.lag_ns[edges], "class": LATENCY}
    )
    work = (
        replay.work.select(COLUMNS)
        .with_columns(on_path_ns=pl.Series(scenario.own_ns))
        .with_row_index("row")
        .with_columns(pl.col("row").cast(pl.Int64))
    )
    taken = (
        pl.concat(parts)
        .filter(pl.col("row") >= 0)
        .join(work, on="row", how="left", validate="m:1", maintain_order="left")
        .drop("row")
    )
    return pl.concat([taken, lag], how="diagonal_relaxed")


def slack_ns(replay: Replay) -> Floats:
    """How much later each row of `work` could end without any averaged step ending later, ns.

    Infinite for work after the last step.
    """
    reached = replay.recorded_ns
    edge_ns = replay.edge_ns(replay.own_ns)
    deadlines = np.full(replay.graph.n_nodes, np.inf)
    ends = _ends(replay, reached)
    deadlines[ends] = reached[ends]
    free = latest(replay.graph, edge_ns, deadlines) - reached
    slack = np.full(replay.work.height, np.inf)
    for rows in (replay.carries, replay.host):
        has = np.flatnonzero(rows >= 0)
        target = replay.graph.targets[has]
        own_free = reached[target] - reached[replay.graph.sources[has]] - edge_ns[has]
        np.minimum.at(slack, rows[has], free[target] + own_free)
    return slack


def _clipped(parts: pl.DataFrame, before_ns: float) -> pl.DataFrame:
    """The path without what its first parts took before the steps began."""
    reached = pl.col("on_path_ns").cum_sum()
    inside = pl.min_horizontal("on_path_ns", (reached - before_ns).clip(lower_bound=0.0))
    return parts.with_columns(on_path_ns=inside).filter(pl.col("on_path_ns") > 0)


def _edges_back(replay: Replay, reached: Floats, edge_ns: Floats) -> tuple[Ints, float]:
    """Edges of the path, first to last, and how much of them lies before the steps begin."""
    graph = replay.graph
    order = np.argsort(graph.targets, kind="stable")
    first = np.searchsorted(graph.targets[order], np.arange(graph.n_nodes + 1))
    begin_ns = reached[replay.steps["opens"].to_numpy()].min()
    found: list[int] = []
    before_ns = 0.0
    for end in _ends(replay, reached).tolist()[::-1]:
        node = end
        while reached[node] > begin_ns:
            into = order[first[node] : first[node + 1]]
            if not len(into):
                break
            arriving = reached[graph.sources[into]] + edge_ns[into]
            edge = int(into[np.argmax(arriving)])
            found.append(edge)
            node = int(graph.sources[edge])
        before_ns += max(0.0, float(begin_ns - reached[node]))
    return np.array(found[::-1], np.int64), before_ns


def _ends(replay: Replay, reached: Floats) -> Ints:
    """Where paths end: each step that was recorded by itself, else the last event of all."""
    opens, closes = (replay.steps[name].to_numpy() for name in ("opens", "closes"))
    if len(np.unique(opens)) == 1:
        return closes
    return closes[[np.argmax(reached[closes])]]
