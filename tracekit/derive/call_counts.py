"""How many collectives each rank calls in each step, by group: members must call equally many.

Counted is by the step that launched a call, of operations that every member takes part in; messages
and calls whose operation is not known are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.activity import device_of_call
from tracekit.derive.averages import averages
from tracekit.derive.cached import remembered
from tracekit.derive.groups import groups
from tracekit.derive.instances import instances
from tracekit.derive.kernel_kinds import POINT_TO_POINT
from tracekit.derive.steps import launched

if TYPE_CHECKING:
    from tracekit.store import Run


@remembered
def call_counts(run: Run) -> pl.DataFrame:
    """Calls of averaged steps, of groups all of whose members were recorded.

    Returns:
        `group`, `members`, `rank`, `step`, `n_calls`; 0 where a member calls nothing; sorted.
    """
    have = pl.Series(run.ranks, dtype=pl.Int64).implode()
    whole = (
        groups(run)
        .drop_nulls(["group", "members"])
        .filter(
            (pl.col("n_members") > 1) & pl.col("members").list.set_difference(have).list.len().eq(0)
        )
        .select("group", "members")
    )
    steps = pl.DataFrame({"step": list(averages(run).steps)}, schema={"step": pl.Int64})
    counted = pl.concat([_of_rank(run, rank) for rank in run.ranks])
    called = whole.join(counted, on="group", how="semi")
    every = (
        called.explode("members", keep_nulls=False)
        .rename({"members": "rank"})
        .join(steps, how="cross")
    )
    return (
        every.join(counted, on=["group", "rank", "step"], how="left", validate="1:1")
        .with_columns(pl.col("n_calls").fill_null(0))
        .join(whole, on="group", validate="m:1")
        .select("group", "members", "rank", "step", "n_calls")
        .sort("group", "step", "rank")
    )


def _of_rank(run: Run, rank: int) -> pl.DataFrame:
    place = ["device", "stream", "start_ns"]
    is_call = pl.col("operation").is_not_null() & ~pl.col("operation").is_in(list(POINT_TO_POINT))
    calls = (
        instances(run)
        .filter((pl.col("rank") == rank) & is_call)
        .select("stream", "start_ns", "group", device=device_of_call(run))
        .unique(place)
    )
    return (
        launched(run, rank)
        .select(*place, "step")
        .join(calls, on=place)
        .drop_nulls("step")
        .group_by("group", "step")
        .agg(n_calls=pl.len().cast(pl.Int64))
        .select("group", "step", "n_calls", rank=pl.lit(rank, pl.Int64))
        .collect()
    )
