"""How unevenly ranks take part in all-to-all: who sends or receives more than the mean member."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.cached import remembered
from tracekit.derive.waits import waits

if TYPE_CHECKING:
    from tracekit.store import Run


@remembered
def exchanges(run: Run) -> pl.DataFrame:
    """Members of each all-to-all of which all were recorded, with what they move.

    The exchange takes as long as the member that moves most; shared evenly, as long as the mean
    one.

    Returns:
        `instance`, `rank`, `group`, `size_bytes` (the larger of what it sends and receives),
        `mean_bytes`, `max_bytes` (over the members); by instance and rank.
    """
    size = pl.max_horizontal("bytes_in", "bytes_out")
    of_all = pl.col("size_bytes")
    return (
        waits(run)
        .filter(
            (pl.col("operation") == "all_to_all")
            & pl.col("instance").is_not_null()
            & (pl.col("n_seen") == pl.col("n_expected"))
        )
        .with_columns(size_bytes=size)
        .filter(of_all.is_not_null().all().over("instance") & (of_all.max().over("instance") > 0))
        .with_columns(
            mean_bytes=of_all.mean().over("instance"), max_bytes=of_all.max().over("instance")
        )
        .select("instance", "rank", "group", "size_bytes", "mean_bytes", "max_bytes")
        .sort("instance", "rank")
        .collect()
    )
