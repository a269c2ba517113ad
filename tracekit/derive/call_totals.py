"""How long the same calls take on the hosts of different ranks.

Operators hold the calls that they make, so that only launching calls are counted: a sum of both
would count a call twice. Calls that wait for the device, or may, say nothing of the host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.averages import of_ranks
from tracekit.derive.cached import cached
from tracekit.derive.steps import begun_inside, spans
from tracekit.schema.table import F64, I64, NAME, Column, Table

if TYPE_CHECKING:
    from tracekit.store import Run

CALL_TOTALS = Table(
    "call_totals",
    "launching call of one name in one step of one rank",
    (
        Column("step", I64, "", "step in which it began"),
        NAME,
        Column("n_calls", I64, "", "how many"),
        Column("median_ns", F64, "ns", "median duration of one"),
    ),
)


def call_totals(run: Run, rank: int) -> pl.LazyFrame:
    """Launching calls of one rank by step and name (`CALL_TOTALS`), sorted by both."""
    return cached(run, CALL_TOTALS, lambda: _totals(run, rank), rank)


def slowness(run: Run, steps: tuple[int, ...]) -> pl.DataFrame:
    """What calls take that all ranks of the averages make, against the median rank.

    Returns:
        `rank`, `name`, `n_calls` a step, `own_ns` (n · median on this rank, a step), `usual_ns`
        (n · median over ranks of that; calls of no length are left out), all Float64; sorted by
        rank and name.
    """
    n_steps = max(len(steps), 1)
    rows = (
        of_ranks(run, call_totals)
        .filter(pl.col("step").is_in(list(steps)))
        .group_by("rank", "name")
        .agg(n_calls=pl.col("n_calls").sum() / n_steps, each_ns=pl.col("median_ns").median())
        .collect()
    )
    n_ranks = rows["rank"].n_unique()
    usual_ns = pl.col("each_ns").median().over("name")
    return (
        rows.filter((pl.len().over("name") == n_ranks) & (usual_ns > 0))
        .with_columns(
            own_ns=pl.col("n_calls") * pl.col("each_ns"), usual_ns=pl.col("n_calls") * usual_ns
        )
        .select("rank", "name", "n_calls", "own_ns", "usual_ns")
        .sort("rank", "name")
    )


def _totals(run: Run, rank: int) -> pl.DataFrame:
    launches = run.scan("launches", rank).filter(pl.col("role").is_in(["launch", "graph-launch"]))
    return (
        begun_inside(launches, spans(run, rank))
        .group_by("step", "name")
        .agg(n_calls=pl.len().cast(pl.Int64), median_ns=pl.col("dur_ns").median())
        .sort("step", "name")
        .collect()
    )
