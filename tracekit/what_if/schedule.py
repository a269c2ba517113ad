"""The engine of every replay: earliest times in a graph of dependencies, of many scenarios at once.

    time(v) = max over dependencies (u, v, w) of time(u) + w

is a longest path. Nodes that wait for no one start at 0. The scenarios differ in the weights alone,
so the order is found once and each level of nodes is one step for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tracekit.errors import InputError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

Weights = Callable[[Ints], Floats]
"""Edges → their weights, one row an edge, one column a scenario."""
WIDE_LEVEL = 64
"""Nodes of a level, in the mean, from which on numpy is faster than Python."""
N_TRIED_LEVELS = 64
"""Levels after which it is known how wide a graph is."""


@dataclass(frozen=True)
class Graph:
    """Nodes 0 … n_nodes - 1 and the edges between them, each from what is waited for."""

    n_nodes: int
    sources: Ints
    targets: Ints

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """The edges by how deep their target lies; each level's rest on earlier ones alone.

        Raises:
            InputError: operations wait for each other in a circle.
        """
        if len(self.circle):
            raise InputError(
                f"{len(self.circle)} operations wait for each other in a circle",
                hint="Their recorded order cannot have happened: are the clocks or sequence "
                "numbers right?",
            )
        order = np.lexsort((self.targets, self._depth[self.targets]))
        targets = self.targets[order]
        begins = np.flatnonzero(np.diff(targets, prepend=-1))  # of the edges into each node
        depth = self._depth[targets[begins]]
        firsts = np.flatnonzero(np.diff(depth, prepend=-1))  # of the nodes of each level
        bounds = np.append(firsts, len(begins))
        edge_bounds = np.append(begins, len(order))
        return tuple(
            Level(
                edges=order[edge_bounds[a] : edge_bounds[z]],
                sources=self.sources[order[edge_bounds[a] : edge_bounds[z]]],
                nodes=targets[begins[a:z]],
                first=begins[a:z] - begins[a],
            )
            for a, z in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        )

    @cached_property
    def circle(self) -> Ints:
        """Nodes that wait for each other, and those between; empty where all can be reached."""
        stuck = self._depth < 0
        is_held = np.ones(1, np.bool_)
        while is_held.any():  # a node none of the others waits for is no part of it
            inside = stuck[self.sources] & stuck[self.targets]
            holds = np.bincount(self.sources[inside], minlength=self.n_nodes) > 0
            is_held = stuck & ~holds
            stuck = stuck & holds
        return np.flatnonzero(stuck)

    @cached_property
    def _depth(self) -> Ints:
        return _depths(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Edges into nodes of one depth, sorted by target; `first` is where each target's begin."""

    edges: Ints
    sources: Ints
    nodes: Ints
    first: Ints


def times(graph: Graph, weights: Weights, n_scenarios: int) -> Floats:
    """When each node is reached, shape (nodes, scenarios), in the unit of the weights.

    Raises:
        InputError: operations wait for each other in a circle.
    """
    reached = np.zeros((graph.n_nodes, n_scenarios))
    for level in graph.levels:
        arriving = reached[level.sources]
        arriving += weights(level.edges)
        if len(level.nodes) < len(level.edges):
            arriving = np.maximum.reduceat(arriving, level.first, axis=0)
        reached[level.nodes] = arriving
    return reached


def latest(graph: Graph, weights: Floats, deadlines: Floats) -> Floats:
    """The latest time of each node by which no node with a deadline is reached after it.

    Args:
        graph: the graph.
        weights: of each edge, in one unit with the deadlines.
        deadlines: of each node, infinite where it has none.

    Returns:
        The times, one a node; infinite where no deadline lies behind.

    Raises:
        InputError: operations wait for each other in a circle.
    """
    found = deadlines.copy()
    for level in reversed(graph.levels):
        counts = np.diff(np.append(level.first, len(level.edges)))
        due = np.repeat(found[level.nodes], counts) - weights[level.edges]
        np.minimum.at(found, level.sources, due)
    return found


def _depths(graph: Graph) -> Ints:
    """Edges on the longest way to each node; -1 where none leads there.

    Level by level where levels are wide, node by node where the graph is deep and narrow: there a
    level of numpy takes longer than its few nodes do in Python.
    """
    by_source = np.argsort(graph.sources, kind="stable")
    first = np.searchsorted(graph.sources[by_source], np.arange(graph.n_nodes + 1))
    targets = graph.targets[by_source]
    depth = np.full(graph.n_nodes, -1, np.int64)
    n_open = np.bincount(graph.targets, minlength=graph.n_nodes)
    ready = np.flatnonzero(n_open == 0)
    last_place = np.empty(graph.n_nodes, np.int64)
    level, n_done = 0, 0
    while len(ready) and (level < N_TRIED_LEVELS or n_done >= WIDE_LEVEL * level):
        depth[ready] = level
        n_done += len(ready)
        counts = first[ready + 1] - first[ready]
        offsets = np.repeat(first[ready] - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
        reached = targets[offsets + np.arange(counts.sum())]
        np.subtract.at(n_open, reached, 1)
        free = reached[n_open[reached] == 0]
        place = np.arange(len(free))
        last_place[free] = place  # a node that several edges lead to is taken once
        ready = free[last_place[free] == place]
        level += 1
    return _depths_by_node(ready.tolist(), level, depth, n_open.tolist(), (first, targets))


def _depths_by_node(
    ready: list[int], level: int, depth: Ints, n_open: list[int], onward: tuple[Ints, Ints]
) -> Ints:
    """Go on from the nodes of a level, one by one; `depth` is filled in place.

    Args:
        ready: nodes of the level.
        level: its depth.
        depth: of each node; -1 where it is not known yet.
        n_open: edges into each node whose sources are not done.
        onward: where the edges out of each node begin, and the targets of all.
    """
    first, targets = (each.tolist() for each in onward)
    while ready:
        depth[ready] = level
        reached = []
        for node in ready:
            for target in targets[first[node] : first[node + 1]]:
                n_open[target] -= 1
                if not n_open[target]:
                    reached.append(target)
        ready = reached
        level += 1
    return depth
