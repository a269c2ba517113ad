"""What may be asked of a job: each question as the scenario that answers it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.what_if.replay import HOST, Replay, Scenario
from tracekit.what_if.schedule import Bools, Floats, Ints

if TYPE_CHECKING:
    from collections.abc import Mapping

IS_HOST = pl.col("class") == HOST


@dataclass(frozen=True, slots=True)
class Changes:
    """A job with changes made to it; each method makes one more.

    `own_ns` is what each row of `Replay.work` takes; `cut` says which edges no longer hold.
    """

    replay: Replay
    own_ns: Floats
    cut: Bools | None = None

    @property
    def scenario(self) -> Scenario:
        """The job so changed."""
        return Scenario(self.own_ns, self.cut)

    def scaled(self, which: pl.Expr, factor: float) -> Changes:
        """Work takes `factor` times as long; of a collective its transfer does.

        Args:
            which: which work, by the columns of `Replay.work`.
            factor: 0.5 is twice as fast, 0 is gone.
        """
        return self.timed(np.where(chosen(self.replay.work, which), factor, 1.0) * self.own_ns)

    def usual(self, which: pl.Expr) -> Changes:
        """Work takes what the like of it takes, whatever was changed before."""
        is_usual = chosen(self.replay.work, which)
        return self.timed(np.where(is_usual, self.replay.usual_ns, self.own_ns))

    def timed(self, own_ns: Floats) -> Changes:
        """All work takes these times, ns."""
        return Changes(self.replay, own_ns, self.cut)

    def without_host(self, intervals: Mapping[int, Ints]) -> Changes:
        """The host spends no time in these intervals.

        Args:
            intervals: by rank, rows of start and end (ns), disjoint and in order.
        """
        return self.timed(np.maximum(self.own_ns - self._in_host(intervals), 0.0))

    def only_host(self, intervals: Mapping[int, Ints]) -> Changes:
        """The host spends no time but in these intervals."""
        inside = np.minimum(self._in_host(intervals), self.own_ns)
        return self.timed(np.where(chosen(self.replay.work, IS_HOST), inside, self.own_ns))

    def _in_host(self, intervals: Mapping[int, Ints]) -> Floats:
        """How much of each piece of the host's work lies in the intervals of its rank."""
        work = self.replay.work
        is_host, ranks = chosen(work, IS_HOST), work["rank"].to_numpy()
        since, until = work["start_ns"].to_numpy(), work["end_ns"].to_numpy()
        inside = np.zeros(work.height)
        for rank, rows in intervals.items():
            own = np.flatnonzero(is_host & (ranks == rank))
            inside[own] = _covered_before(rows, until[own]) - _covered_before(rows, since[own])
        return inside

    def without_waits(self, which: pl.Expr) -> Changes:
        """Blocking calls return at once; `which` says which, by the columns of `Replay.calls`."""
        is_gone = np.append(chosen(self.replay.calls, which), [False])  # the last: for -1
        cut = is_gone[self.replay.call]
        return Changes(self.replay, self.own_ns, cut if self.cut is None else cut | self.cut)


def unchanged(replay: Replay) -> Changes:
    """The job as it was recorded."""
    return Changes(replay, replay.own_ns)


def chosen(rows: pl.DataFrame, which: pl.Expr) -> Bools:
    """Of which rows an expression holds; where it is null it does not."""
    found: Bools = rows.with_columns(is_it=which.fill_null(value=False))["is_it"].to_numpy()
    return found


def _covered_before(rows: Ints, at: Ints) -> Floats:
    """How much of the intervals lies before each time, ns."""
    if not len(rows):
        return np.zeros(len(at))
    lengths = np.cumsum(rows[:, 1] - rows[:, 0])
    knots = rows.reshape(-1).astype(np.float64)
    sums = np.empty(len(knots))
    sums[1::2] = lengths
    sums[::2] = np.concatenate(([0], lengths[:-1]))
    found: Floats = np.interp(at, knots, sums)
    return found
