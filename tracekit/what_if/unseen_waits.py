"""Waits of the host that no synchronising call shows, as calls that last until what they wait for.

Taken for the host's own work they would stay when the rank that is waited for comes sooner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.host_kinds import ALLOCATOR
from tracekit.derive.intervals import covered_ns
from tracekit.derive.kernel_kinds import COMMUNICATION

if TYPE_CHECKING:
    from tracekit.store import Run
    from tracekit.what_if.streams import Streams

LONG_FREE_NS = 1_000_000
"""A shorter call that frees or allocates is taken for the host's own work."""
HIDDEN_NS = 5_000_000
"""Stretches without any call that are looked at for a wait that was not recorded."""
HIDDEN_SHARE = 0.8
"""How much of such a stretch a collective and an operator must cover."""


def hidden_waits(run: Run, rank: int, calls: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Calls that no trace shows: an operator does nothing for long while others are waited for.

    An allocation, say, may wait for the device without a call of its own. Such a stretch lies in an
    operator, for the most part in a collective launched before, and lasts beyond its end; the host
    goes on from there.

    Returns:
        start_ns, end_ns, name, `awaited`: the row of the event.
    """
    reached = calls["end_ns"].cum_max().shift(1)
    idle = calls.select(begins=reached, ends="start_ns").drop_nulls()
    idle = idle.filter(pl.col("ends") - pl.col("begins") >= HIDDEN_NS)
    found = _covered_by_collectives(idle, events)
    if not found.is_empty():  # seldom, so that operators need not be read
        found = found.filter(_operator_ns(run, rank, found) >= _share_of_stretch())
    return found.select(
        start_ns="begins",
        end_ns="end_ns",
        name=pl.lit("a wait that no call shows"),
        awaited=pl.col("awaited").cast(pl.Int64),
    )


def _share_of_stretch() -> pl.Expr:
    return HIDDEN_SHARE * (pl.col("ends") - pl.col("begins"))


def _covered_by_collectives(idle: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Stretches (`begins`, `ends`) with the collective that waited in most of each, by `begins`."""
    met = events.with_row_index("awaited").filter(
        (pl.col("class") == COMMUNICATION) & (pl.col("waited_ns") > 0)
    )
    return (
        idle.join(met, how="cross")
        .filter(
            (pl.col("launch_start_ns") < pl.col("begins"))
            & (pl.col("end_ns") > pl.col("begins"))
            & (pl.col("end_ns") <= pl.col("ends"))
            & (pl.col("end_ns") - pl.max_horizontal("start_ns", "begins") >= _share_of_stretch())
        )
        .sort("end_ns")
        .unique("begins", keep="last")
        .sort("begins")
    )


def _operator_ns(run: Run, rank: int, stretches: pl.DataFrame) -> pl.Series:
    """How much of each stretch operators cover, ns."""
    operators = (
        run.scan("cpu_ops", rank)
        .filter(pl.col("name").str.starts_with("aten::"))
        .select("start_ns", (pl.col("start_ns") + pl.col("dur_ns")).alias("end_ns"))
        .collect()
        .with_columns(key=pl.lit(0))
    )
    spans = stretches.select(start_ns="begins", end_ns="ends").with_columns(key=pl.lit(0))
    return covered_ns(spans, operators, "key")


def freeing_waits(calls: pl.DataFrame, streams: Streams) -> pl.DataFrame:
    """Calls that free or allocate and had to wait for the device, up to the end of what they did.

    cudaFree waits for all that was launched; what it takes beyond is the host's time. Columns as in
    `hidden_waits`.
    """
    long = calls.filter(
        (pl.col("class") == ALLOCATOR) & (pl.col("end_ns") - pl.col("start_ns") >= LONG_FREE_NS)
    )
    rows = []
    for start_ns, end_ns, name in long.select("start_ns", "end_ns", "name").iter_rows():
        last = streams.last_of_all(start_ns, end_ns)
        if last >= 0 and streams.ends[last] > start_ns:
            rows.append((start_ns, int(streams.ends[last]), name, last))
    schema = {"start_ns": pl.Int64, "end_ns": pl.Int64, "name": pl.String, "awaited": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")
