"""Calls of one number in a group that are not the same call on all ranks.

Compared are the operation, the element types, and the shapes where they must be equal on all ranks:
of all-reduce, broadcast and the even forms of all-gather and reduce-scatter. Of all-to-all, gather
and scatter, and of calls that were put together (coalesced), ranks may differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.cached import remembered
from tracekit.derive.hangs import records

if TYPE_CHECKING:
    from tracekit.store import Run

EVEN = r":(?:_?all_?reduce|broadcast|_all_gather_base|_reduce_scatter_base)$"
"""Names of calls whose shapes are the same on all ranks."""
ANY = r"coalesced|:(?:all_to_all|alltoall|gather|scatter|barrier)"
"""Names of calls that are not compared by shape or type."""
ORDER = ("operation", "type", "shape")


@remembered
def mismatches(run: Run) -> pl.DataFrame:
    """One row a rank and call that is not the same on all ranks, the first call first.

    Returns:
        `label`, `sequence`, `rank`, `what` (operation, type or shape), `value` on this rank,
        `usual` on most ranks, `created_ns` and `stack`.
    """
    here = ["label", "sequence"]
    is_any = pl.col("name").str.contains(ANY)
    operation = pl.col("name").str.split(":").list.last()
    values = {
        "operation": operation,
        "type": pl.when(~is_any).then("dtypes"),
        "shape": pl.when(pl.col("name").str.contains(EVEN)).then("sizes_in"),
    }
    calls = (
        records(run)
        .filter(~pl.col("is_message") & pl.col("sequence").is_not_null())
        .unique([*here, "rank"], keep="none")  # parts of one coalesced call share its number
    )
    parts = []
    for what, value in values.items():
        named = calls.select(*here, "rank", "created_ns", "stack", value=value).drop_nulls("value")
        usual = (
            named.group_by(*here, "value")
            .agg(n=pl.len(), first_rank=pl.col("rank").min())
            .sort("n", "first_rank", descending=[True, False])
            .group_by(here, maintain_order=True)
            .agg(usual=pl.col("value").first(), n_values=pl.len())
        )
        parts.append(
            named.join(usual.filter(pl.col("n_values") > 1), on=here).with_columns(
                what=pl.lit(what), order=pl.lit(ORDER.index(what))
            )
        )
    first_of_call = pl.col("order") == pl.col("order").min().over(here)
    return (
        pl.concat(parts)
        .filter(first_of_call)  # another operation has other shapes
        .filter(pl.col("value") != pl.col("usual"))
        .with_columns(first_ns=pl.col("created_ns").min().over(here))
        .sort("first_ns", *here, "rank")
        .select(*here, "rank", "what", "value", "usual", "created_ns", "stack")
    )
