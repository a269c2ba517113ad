"""A rank made like its peers: what its devices and its host do takes what it takes them.

Peers are the other ranks of its pipeline stage. Where they ran the same kernels in the same order,
and their hosts made the same calls, each is compared with its like; else only the sums of a step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.derive.steps import marks
from tracekit.what_if.replay import HOST

if TYPE_CHECKING:
    from collections.abc import Collection

    from tracekit.store import Run
    from tracekit.what_if.changes import Changes
    from tracekit.what_if.replay import Replay
    from tracekit.what_if.schedule import Floats, Ints

_ON_DEVICE = ("compute", "copy")
_MEDIAN = pl.col("own_ns").quantile(0.5, "lower")
"""Of two it is the shorter one: the longer may come down to the other."""
_SLOT = ["stage", "step", "stream", "n_in_stream", "position", "name"]
"""One event of a step on the ranks that ran as many: the same program, as far as it can be seen."""


def like_peers(changes: Changes, run: Run, ranks: Collection[int]) -> Changes:
    """Devices and hosts of these ranks take what those of their peers do."""
    return host_like_peers(device_like_peers(changes, ranks), run, ranks)


def device_like_peers(changes: Changes, ranks: Collection[int]) -> Changes:
    """Kernels and copies of these ranks take what those of their peers do, none longer than now.

    A stage without others is compared by its sum with those of the other stages.
    """
    events = _events(changes, pl.col("class").is_in(_ON_DEVICE)).with_columns(
        is_own=pl.col("rank").is_in(list(ranks))
    )
    of_peers = _of_peers(events)
    own = events.filter("is_own")
    slots = of_peers.group_by(_SLOT).agg(slot_ns=_MEDIAN)
    own = (
        own.join(slots, on=_SLOT, how="left", nulls_equal=True)
        .join(
            _name_factors(own, of_peers),
            on=["rank", "step", "type", "name"],
            how="left",
            nulls_equal=True,
        )
        .join(
            _factors(own, of_peers, ["stage", "step", "type"]),
            on=["rank", "step", "type"],
            how="left",
            nulls_equal=True,
        )
        .join(
            _whole_factors(own, of_peers, events), on=["rank", "step"], how="left", nulls_equal=True
        )
        .with_columns(
            like_ns=pl.coalesce(
                "slot_ns",
                pl.col("own_ns") * pl.coalesce("name_factor", "factor", "whole_factor"),
                "own_ns",
            )
        )
    )
    own_ns = changes.own_ns.copy()
    rows = own["row"].to_numpy()
    own_ns[rows] = np.minimum(own["like_ns"].cast(pl.Float64).to_numpy(), own_ns[rows])
    return changes.timed(own_ns)


def even_over_ranks(changes: Changes, which: pl.Expr) -> Changes:
    """Work takes on all ranks of a stage what it takes on the mean one, kernel by kernel.

    Where ranks ran different kernels, each kind does, step by step.

    Args:
        changes: the job.
        which: which work, by the columns of `Replay.work`.
    """
    events = _events(changes, pl.col("class").is_in(_ON_DEVICE))
    n_ranks = pl.col("rank").n_unique().over("stage")
    mean_ns = pl.col("own_ns").mean()
    is_alike = pl.col("own_ns").len().over(_SLOT) == n_ranks
    sums = pl.col("own_ns").sum().over("rank", "step", "type")
    is_first = pl.col("rank").is_first_distinct().over("rank", "step", "type")
    mean_sum = sums.filter(is_first).mean().over("stage", "step", "type")  # each rank counts once
    even = events.with_columns(
        even_ns=pl.when(is_alike)
        .then(mean_ns.over(_SLOT))
        .otherwise(pl.col("own_ns") * mean_sum / sums)
    ).filter(which)
    own_ns = changes.own_ns.copy()
    own_ns[even["row"].to_numpy()] = even["even_ns"].fill_nan(None).fill_null(0.0).to_numpy()
    return changes.timed(own_ns)


def even_in_steps(changes: Changes, which: pl.Expr) -> Changes:
    """Work takes each time that a rank does it in a step what it takes in the mean.

    Args:
        changes: the job.
        which: which work, by the columns of `Replay.work`; the same work has the same name.
    """
    work = _events(changes, which)
    mean_ns = pl.col("own_ns").mean().over("rank", "step", "stream", "name")
    factor = pl.when(pl.col("own_ns") > 0).then(mean_ns / pl.col("own_ns"))
    return _by_factor(changes, work.with_columns(factor=factor))


def even_over_stages(changes: Changes, which: pl.Expr) -> Changes:
    """Work takes on all stages of a pipeline together what it takes on the mean one."""
    work = _events(changes, which)
    totals = work.group_by("dp", "stage", "step").agg(pl.col("own_ns").sum())
    mean_ns = pl.col("own_ns").mean().over("dp", "step")
    factors = totals.select(
        "dp", "stage", "step", factor=pl.when(pl.col("own_ns") > 0).then(mean_ns / pl.col("own_ns"))
    )
    return _by_factor(changes, work.join(factors, on=["dp", "stage", "step"]))


def shared_by_speed(changes: Changes, which: pl.Expr) -> Changes:
    """Work is dealt out so that all ranks of a stage end together, each at its own speed."""
    work = _events(changes, which)
    totals = work.group_by("stage", "rank", "step").agg(pl.col("own_ns").sum())
    shared_ns = pl.len().over("stage", "step") / (1 / pl.col("own_ns")).sum().over("stage", "step")
    factors = totals.filter(pl.col("own_ns") > 0).select(
        "rank", "step", factor=shared_ns / pl.col("own_ns")
    )
    return _by_factor(changes, work.join(factors, on=["rank", "step"]))


def host_like_peers(changes: Changes, run: Run, ranks: Collection[int]) -> Changes:
    """The hosts of these ranks take between their calls what those of their peers do.

    A rank that is alone in its stage is compared with the other stages.
    """
    replay = changes.replay
    stages = dict(replay.work.select("rank", "stage").unique().iter_rows())
    lines = {rank: _HostLine(replay, run, rank) for rank in run.ranks}
    own_ns = changes.own_ns.copy()
    for rank in ranks:
        others = [other for other in run.ranks if other not in ranks]
        of_stage = [other for other in others if stages.get(other) == stages.get(rank)]
        all_of_stage = [other for other in run.ranks if stages.get(other) == stages.get(rank)]
        peers = of_stage or (others if len(all_of_stage) == 1 else all_of_stage)
        if peers and len(lines[rank].knots):
            lines[rank].follow([lines[peer] for peer in peers], own_ns)
    return changes.timed(own_ns)


class _HostLine:
    """The host of one rank as a line of calls, and the time between one and the next.

    `knots` (ns) are where its work begins or ends, at returns of blocking calls and at launches;
    `kinds` says of each whether one returns and whether one begins there; `lengths` (ns) is the
    host's time before it.
    """

    def __init__(self, replay: Replay, run: Run, rank: int) -> None:
        work = replay.work.with_row_index("row")
        rows = work.filter((pl.col("class") == HOST) & (pl.col("rank") == rank))
        self.rows = rows["row"].to_numpy()
        self.since, self.until = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
        self.knots: Ints = np.unique(np.concatenate((self.since, self.until)))
        returns = np.isin(self.knots, self.since)
        begins = np.isin(
            self.knots, replay.calls.filter(pl.col("rank") == rank)["start_ns"].to_numpy()
        )
        self.kinds = np.stack((returns, begins))
        starts = marks(run, rank)["start_ns"].to_numpy()
        self.step: Ints = np.searchsorted(starts, self.knots, side="right")
        self.lengths: Floats = np.diff(self.knots, prepend=self.knots[:1]).astype(np.float64)
        # what a blocking call takes is no time of the host
        self.lengths[returns] = 0.0

    def of_step(self, step: int) -> Ints:
        """Places of the calls of a step."""
        return np.flatnonzero(self.step == step)

    def follow(self, peers: list[_HostLine], own_ns: Floats) -> None:
        """Make the work of this line take what that of the median peer does, or less."""
        lengths = self.lengths.copy()
        for step in np.unique(self.step).tolist():
            own = self.of_step(step)
            places = [(peer, peer.of_step(step)) for peer in peers]
            alike = [
                peer.lengths[at]
                for peer, at in places
                if len(at) == len(own) and (peer.kinds[:, at] == self.kinds[:, own]).all()
            ]
            if alike:
                lengths[own] = np.minimum(lengths[own], np.median(np.stack(alike), axis=0))
                continue
            sums = [peer.lengths[at].sum() for peer, at in places if len(at)]
            if sums:
                lengths[own] = _capped(lengths[own], float(np.median(sums)))
        reached = np.cumsum(lengths)
        at = np.searchsorted(self.knots, self.until)
        begun = np.searchsorted(self.knots, self.since)
        own_ns[self.rows] = np.minimum(own_ns[self.rows], reached[at] - reached[begun])


def _capped(lengths: Floats, total: float) -> Floats:
    """The lengths with the longest cut to one level, so that they sum to a total or less."""
    if lengths.sum() <= total:
        return lengths
    rising = np.sort(lengths)
    left = total - np.concatenate(([0.0], np.cumsum(rising)[:-1]))  # for those not yet passed
    level = left / np.arange(len(rising), 0, -1)
    fits = np.flatnonzero(level <= rising)
    return np.minimum(lengths, max(0.0, float(level[fits[0]])) if len(fits) else rising[-1])


def _events(changes: Changes, which: pl.Expr) -> pl.DataFrame:
    """Work of the averaged steps, with its `row` and its place among that of its stream."""
    stream = ["rank", "step", "stream"]
    return (
        changes.replay.work.with_row_index("row")
        .filter(which & pl.col("step").is_not_null())
        .sort("start_ns")
        .with_columns(
            position=pl.int_range(pl.len()).over(stream), n_in_stream=pl.len().over(stream)
        )
    )


def _of_peers(events: pl.DataFrame) -> pl.DataFrame:
    """Events of ranks that are not asked about; where no rank is left, of all."""
    others = events.filter(~pl.col("is_own"))
    return others if others.height else events


def _factors(own: pl.DataFrame, of_peers: pl.DataFrame, place: list[str]) -> pl.DataFrame:
    """`factor` by rank and place: the median peer's total / the rank's own."""
    totals = of_peers.group_by("rank", *place).agg(pl.col("own_ns").sum())
    usual = totals.group_by(place).agg(usual_ns=_MEDIAN)
    mine = own.group_by("rank", *place).agg(pl.col("own_ns").sum())
    return (
        mine.join(usual, on=place, how="left", nulls_equal=True)
        .with_columns(
            factor=pl.when(pl.col("own_ns") > 0).then(pl.col("usual_ns") / pl.col("own_ns"))
        )
        .drop("own_ns", "usual_ns", "stage", strict=False)
    )


def _name_factors(own: pl.DataFrame, of_peers: pl.DataFrame) -> pl.DataFrame:
    """`name_factor` by rank, step, type and name, of types whose kernels have the peers' names.

    A kernel that a rank runs more often than they do must not shorten others of its type, which run
    between other collectives. Where names differ, as those that are tuned do, only the type is
    alike.
    """
    place = ["stage", "step", "type"]
    peers = of_peers.group_by(place).agg(names=pl.col("name").unique().sort())
    alike = (
        own.group_by("rank", *place)
        .agg(own_names=pl.col("name").unique().sort())
        .join(peers, on=place, nulls_equal=True)
        .filter(pl.col("own_names") == pl.col("names"))
        .select("rank", "step", "type")
    )
    return (
        _factors(own, of_peers, [*place, "name"])
        .join(alike, on=["rank", "step", "type"], how="semi", nulls_equal=True)
        .rename({"factor": "name_factor"})
    )


def _whole_factors(own: pl.DataFrame, of_peers: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """`whole_factor` by rank and step, where a stage has no others: of all its work together."""
    lonely = own.join(of_peers.select("stage").unique(), on="stage", how="anti")
    columns = events.columns
    whole = _factors(lonely.select(columns), of_peers.select(columns), ["step"])
    return whole.rename({"factor": "whole_factor"})


def _by_factor(changes: Changes, rows: pl.DataFrame) -> Changes:
    """Rows take `factor` times as long."""
    own_ns = changes.own_ns.copy()
    at = rows["row"].to_numpy()
    own_ns[at] *= rows["factor"].fill_null(1.0).cast(pl.Float64).to_numpy()
    return changes.timed(own_ns)
