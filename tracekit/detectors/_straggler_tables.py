"""Tables of evidence for a straggler."""

from __future__ import annotations

import polars as pl

from tracekit.findings import Column, Evidence
from tracekit.units import Unit


def by_rank(calls: pl.DataFrame, late: pl.DataFrame) -> Evidence:
    """Waiting and lateness of each rank: calls with known waits, and late arrivals."""
    own = late.group_by("rank").agg(
        pl.col("late_ns", "caused_ns").sum(), n_late=pl.len().cast(pl.Int64)
    )
    caused = pl.col("caused_ns") / pl.col("caused_ns").sum()
    table = (
        calls.group_by("rank")
        .agg(n_calls=pl.len(), wait_ns=pl.col("wait_ns").sum())
        .join(own, on="rank", how="left", validate="1:1")
        .with_columns(pl.col("n_late", "late_ns", "caused_ns").fill_null(0))
        .sort("rank")  # doubles that are added in another order differ in the last digit
        .with_columns(caused_share=caused.fill_nan(0.0))
        .sort("caused_share", "rank", descending=[True, False])
        .head(16)
        .select("rank", "n_calls", "n_late", "late_ns", "wait_ns", "caused_share")
    )
    return Evidence(
        title="Who waited, who was late",
        columns=(
            Column("rank"),
            Column("collectives compared, whole trace", Unit.COUNT),
            Column("late in", Unit.COUNT),
            Column("lateness, sum", Unit.NS),
            Column("own waiting, whole trace", Unit.NS),
            Column("share of the waiting it caused", Unit.SHARE),
        ),
        rows=tuple(table.iter_rows()),
    )


def differences(parts: pl.DataFrame) -> Evidence:
    """Where a late rank's step exceeds its peers' (rows of `differences_from_peers`)."""
    return Evidence(
        title="Its mean step against the median peer's",
        columns=(
            Column("part"),
            Column("this rank", Unit.NS),
            Column("median peer", Unit.NS),
            Column("more than the peer", Unit.NS),
        ),
        rows=tuple(parts.select("part", "own_ns", "peer_ns", "extra_ns").iter_rows()),
    )
