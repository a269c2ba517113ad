"""A job as a graph that can be replayed: what takes time in it, and how long its steps take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.what_if.schedule import Bools, Floats, Graph, Ints, times

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_CELLS = 1 << 24
"""Nodes × scenarios at a time: 128 MB of times."""
HOST = "host"
"""Class, and type, of the host's time between its waits."""


@dataclass(frozen=True)
class Replay:
    """A graph of dependencies, and the work that its edges carry.

    `work` has a row for whatever takes time: rank, dp, stage, class (compute, communication, copy,
    host), type (kind of kernel, operation, …), name, start_ns, end_ns as recorded, `own_ns` (of
    communication the transfer) and `usual_ns`, what others of its kind take. An edge takes
    `lag_ns`, the work `carries` and the work `host` (-1: none); by edges with a `call` (≥ 0) a
    blocking call waits. `steps` are the windows that are averaged: rank, step, dur_ns as measured,
    and the nodes `opens` and `closes`. `calls` are the blocking calls: rank, name, times.
    `is_inferred` says whether dependencies had to be guessed from times, `launched_share` which
    share of the device's events have their launch in the file.
    """

    graph: Graph
    work: pl.DataFrame
    lag_ns: Floats
    carries: Ints
    host: Ints
    call: Ints
    steps: pl.DataFrame
    calls: pl.DataFrame
    is_inferred: bool
    n_steps_left_out: int = 0
    launched_share: float = 1.0

    @cached_property
    def own_ns(self) -> Floats:
        """What each row of `work` takes, as recorded."""
        return self.work["own_ns"].to_numpy().astype(np.float64)

    @cached_property
    def usual_ns(self) -> Floats:
        """What the like of each row of `work` takes."""
        return self.work["usual_ns"].to_numpy().astype(np.float64)

    @cached_property
    def recorded_ns(self) -> Floats:
        """When each node is reached with everything as recorded, ns."""
        reached: Floats = self.reached_ns([Scenario(self.own_ns)])[:, 0]
        return reached

    @cached_property
    def step_ns(self) -> float:
        """T: the mean replayed step with everything as recorded."""
        return float(self._spans(self.recorded_ns).mean())

    @cached_property
    def measured_ns(self) -> float:
        """T_real: the mean measured step."""
        return float(self.steps["dur_ns"].cast(float).to_numpy().mean())

    @cached_property
    def n_steps(self) -> int:
        """How many steps are averaged; ranks share their numbers."""
        return max(1, self.steps["step"].n_unique())

    @property
    def error(self) -> float:
        """|T - T_real| / T_real, a share; infinite where a step takes no time as measured."""
        if not self.measured_ns > 0:
            return math.inf
        return abs(self.step_ns - self.measured_ns) / self.measured_ns

    def mean_step_ns(self, scenarios: Iterable[Scenario]) -> Floats:
        """Mean step of each scenario, ns, in their order; of a generator few exist at a time.

        Raises:
            InputError: operations wait for each other in a circle.
        """
        n = max(1, MAX_CELLS // max(self.graph.n_nodes, len(self.carries)))
        left, means = iter(scenarios), []
        while chunk := list(islice(left, n)):
            means.append(self.step_times_ns(chunk).mean(axis=0))
        return np.concatenate(means)

    def step_times_ns(self, scenarios: Sequence[Scenario]) -> Floats:
        """Time of each row of `steps`, one column a scenario, ns."""
        return self._spans(self.reached_ns(scenarios))

    def _spans(self, reached: Floats) -> Floats:
        opens, closes = (self.steps[name].to_numpy() for name in ("opens", "closes"))
        spans: Floats = reached[closes] - reached[opens]
        return spans

    def reached_ns(self, scenarios: Sequence[Scenario]) -> Floats:
        """When each node is reached, one column a scenario, ns."""
        own = np.zeros((self.work.height + 1, len(scenarios)))  # the last row: for -1
        for column, each in enumerate(scenarios):
            own[:-1, column] = each.own_ns
        has_host = bool((self.host >= 0).any())
        cuts = [(column, s.cut) for column, s in enumerate(scenarios) if s.cut is not None]

        def weights(edges: Ints) -> Floats:
            taken: Floats = own[self.carries[edges]]
            taken += self.lag_ns[edges, None]
            if has_host:
                taken += own[self.host[edges]]
            for column, cut in cuts:
                taken[cut[edges], column] = -np.inf
            return taken

        return times(self.graph, weights, len(scenarios))

    def edge_ns(self, own_ns: Floats) -> Floats:
        """What each edge takes where the work takes these times."""
        own = np.append(own_ns, 0.0)
        taken: Floats = self.lag_ns + own[self.carries] + own[self.host]
        return taken


@dataclass(frozen=True, slots=True)
class Scenario:
    """What everything takes (ns, a row of `work` each), and edges that no longer hold."""

    own_ns: Floats
    cut: Bools | None = None
