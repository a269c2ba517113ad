"""Which stage of which pipeline each rank is: by whom it sends to and receives from.

Ranks that exchange messages form a pipeline, in the order of their numbers, as frameworks place
them. Where messages do not name their peers, the groups that carry them do. A rank that exchanges
none is a pipeline of one stage. A ring, in which each passes on to the next only, is none: context
parallel ranks exchange keys and values so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.cached import remembered
from tracekit.derive.kernel_kinds import POINT_TO_POINT

if TYPE_CHECKING:
    from tracekit.store import Run


_CONTEXT = r"(?i)context|\bcp\b|ring"
"""What frameworks call the groups of context parallel ranks."""


@remembered
def stages(run: Run) -> pl.DataFrame:
    """`rank`, `pipeline` (its lowest rank), `stage` (0 first), `n_stages`; by rank."""
    lowest = {rank: rank for rank in run.ranks}
    changed = True
    pairs = _pairs(run)
    while changed:
        changed = False
        for one, other in pairs:
            low = min(lowest[one], lowest[other])
            if lowest[one] != low or lowest[other] != low:
                lowest[one] = lowest[other] = low
                changed = True
    found = pl.DataFrame(
        {"rank": list(lowest), "pipeline": list(lowest.values())},
        schema={"rank": pl.Int64, "pipeline": pl.Int64},
    )
    return found.sort("rank").with_columns(
        stage=pl.int_range(pl.len(), dtype=pl.Int64).over("pipeline"),
        n_stages=pl.len().over("pipeline").cast(pl.Int64),
    )


def _pairs(run: Run) -> list[tuple[int, int]]:
    """Ranks that exchange messages, each pair once in either order; only ranks of the run."""
    rank = pl.col("rank")
    is_context = pl.col("group_description").str.contains(_CONTEXT).fill_null(value=False)
    messages = (
        run.scan_all("collectives")
        .filter(pl.col("operation").is_in(list(POINT_TO_POINT)) & ~is_context)
        .select("rank", "operation", "source_rank", "destination_rank", "members")
        .unique()
        .collect()
    )
    messages = messages.join(_in_rings(messages), on="rank", how="anti")
    named = messages.select(
        "rank", peer=pl.coalesce("destination_rank", "source_rank")
    ).drop_nulls()
    grouped = (
        messages.filter(
            pl.coalesce("destination_rank", "source_rank").is_null()
            & (pl.col("members").list.len() <= MAX_PIPELINE)
        )
        .select("rank", peer="members")
        .explode("peer")
        .drop_nulls()
    )
    pairs = pl.concat([named, grouped]).filter(
        (rank != pl.col("peer")) & pl.col("peer").is_in(list(run.ranks))
    )
    return sorted(pairs.unique().iter_rows())


def _in_rings(messages: pl.DataFrame) -> pl.DataFrame:
    """Ranks that send to one and receive from another alone, as all that they exchange with do."""
    to, source = pl.col("destination_rank"), pl.col("source_rank")
    ends = messages.group_by("rank").agg(
        to=to.filter(pl.col("operation") == "send").unique().drop_nulls(),
        source=source.filter(pl.col("operation") == "recv").unique().drop_nulls(),
    )
    single = ends.filter(
        (pl.col("to").list.len() == 1) & (pl.col("source").list.len() == 1)
    ).select("rank", to=pl.col("to").list.first(), source=pl.col("source").list.first())
    ring = single.filter(pl.col("to") != pl.col("source"))
    while True:  # an end of a chain takes its neighbours out
        inner = ring.join(ring.select(to="rank"), on="to", how="semi").join(
            ring.select(source="rank"), on="source", how="semi"
        )
        if inner.height == ring.height:
            return ring.select("rank")
        ring = inner


MAX_PIPELINE = 64
"""A larger group that carries messages is the whole job, and says nothing of its pipelines."""
