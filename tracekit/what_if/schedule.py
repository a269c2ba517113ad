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
        depth = self._depth
        deepest = depth[self.targets]
        order = np.lexsort((self.targets, deepest))
        ends = np.cumsum(np.bincount(deepest)) if len(order) else np.empty(0, np.int64)
        starts = np.concatenate(([0], ends[:-1])) if len(order) else ends
        return tuple(
            _level(self, order[start:end])
            for start, end in zip(starts, ends, strict=True)
            if end > start
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


@dataclass(frozen=True)
class Level:
    """Edges into nodes of one depth, sorted by target; `first` is where each target's begin."""

    edges: Ints
    sources: Ints
    nodes: Ints
    first: Ints


def times(graph: Graph, weights: Weights, n_scenarios: int, begun: Floats | None = None) -> Floats:
    """When each node is reached, shape (nodes, scenarios), in the unit of the weights.

    No node is reached before it has `begun` (same shape); without it nodes that wait for no one
    are at 0.

    Raises:
        InputError: operations wait for each other in a circle.
    """
    reached = np.zeros((graph.n_nodes, n_scenarios)) if begun is None else begun.copy()
    for level in graph.levels:
        arriving = reached[level.sources]
        arriving += weights(level.edges)
        if len(level.nodes) < len(level.edges):
            arriving = np.maximum.reduceat(arriving, level.first, axis=0)
        if begun is not None:
            np.maximum(arriving, begun[level.nodes], out=arriving)
        reached[level.nodes] = arriving
    return reached


def _level(graph: Graph, edges: Ints) -> Level:
    nodes, first = np.unique(graph.targets[edges], return_index=True)
    return Level(edges, graph.sources[edges], nodes, first)


def _depths(graph: Graph) -> Ints:
    """Edges on the longest way to each node, counted level by level; -1 where none leads there."""
    depth = np.full(graph.n_nodes, -1, np.int64)
    n_open = np.bincount(graph.targets, minlength=graph.n_nodes)
    by_source = np.argsort(graph.sources, kind="stable")
    first = np.searchsorted(graph.sources[by_source], np.arange(graph.n_nodes + 1))
    ready = np.flatnonzero(n_open == 0)
    level = 0
    while len(ready):
        depth[ready] = level
        counts = first[ready + 1] - first[ready]
        offsets = np.repeat(first[ready] - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
        reached = graph.targets[by_source[offsets + np.arange(counts.sum())]]
        np.subtract.at(n_open, reached, 1)
        unique = np.unique(reached)
        ready = unique[n_open[unique] == 0]
        level += 1
    return depth
