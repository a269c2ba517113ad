"""How long the collectives of a group take against those of its peers: same traffic, other ranks.

Peers are groups of one dimension whose members lie equally far apart (`groups`); compared are the
medians of transfers of one operation and size. What is usual among peers is their median, of two
groups the faster one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.cached import remembered
from tracekit.derive.groups import groups
from tracekit.derive.kernel_kinds import POINT_TO_POINT
from tracekit.derive.traffic import traffic

if TYPE_CHECKING:
    from tracekit.store import Run

_SAME = ("dimension", "layout", "operation", "size_bytes")


@remembered
def peer_transfers(run: Run) -> pl.DataFrame:
    """Transfers of each group, operation and size that peers have too, by group.

    Returns:
        `group`, `operation`, `size_bytes`, `n_calls`, `p50_ns`, `usual_ns` (of its peers, itself
        among them), `n_peers` (other groups), and the group's `members`.
    """
    transfers = (
        traffic(run)
        .filter(
            ~pl.col("is_bound")
            & pl.col("transfer_ns").is_not_null()
            & (pl.col("size_bytes") > 0)
            & ~pl.col("operation").is_in(list(POINT_TO_POINT))
        )
        .collect()
    )
    return (
        transfers.join(groups(run).drop("n_members"), on="group", validate="m:1")
        .drop_nulls("layout")
        .group_by("group", *_SAME)
        .agg(
            pl.col("members").first(),
            n_calls=pl.len(),
            p50_ns=pl.col("transfer_ns").median(),
        )
        .with_columns(
            usual_ns=pl.col("p50_ns").quantile(0.5, "lower").over(_SAME),
            n_peers=pl.len().over(_SAME) - 1,
        )
        .filter(pl.col("n_peers") > 0)
        .select(
            "group",
            "operation",
            "size_bytes",
            "n_calls",
            "p50_ns",
            "usual_ns",
            "n_peers",
            "members",
        )
        .sort("group", "operation", "size_bytes")
    )
