"""Messages by who sends them to whom: pairs of ranks, and of hosts where those are known.

What members of a collective send each other depends on its algorithm, which no trace records, so
that only messages count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.traffic import traffic

if TYPE_CHECKING:
    from tracekit.store import Run

MAX_PAIRS = 4096
"""Those with most bytes: 1,024 ranks with two neighbours each have half as many."""


def pairs(run: Run) -> pl.DataFrame:
    """Messages by pair, those with most bytes first.

    Returns:
        `sender`, `receiver` (rank or host as text), `is_hosts`, `n_calls`, `total_bytes`, `p50_ns`,
        `busbw_gb_s` (medians of transfers; null where not known).
    """
    ends = ("sender", "receiver")
    messages = traffic(run).drop_nulls(ends).collect()
    of_ranks = _by_pair(messages.with_columns(pl.col(ends).cast(pl.String)), is_hosts=False)
    hosts = {capture.rank: capture.host for capture in run.manifest.captures if capture.host}
    named = messages.with_columns(
        pl.col(end).replace_strict(hosts, default=None, return_dtype=pl.String) for end in ends
    )
    of_hosts = _by_pair(named.drop_nulls(ends), is_hosts=True)
    return pl.concat([of_hosts, of_ranks]).head(MAX_PAIRS)


def _by_pair(messages: pl.DataFrame, *, is_hosts: bool) -> pl.DataFrame:
    nbytes = pl.col("size_bytes")
    return (
        messages.group_by("sender", "receiver")
        .agg(
            is_hosts=pl.lit(is_hosts),
            n_calls=pl.len().cast(pl.Int64),
            total_bytes=pl.when(nbytes.is_not_null().any()).then(nbytes.sum()),
            p50_ns=pl.col("transfer_ns").median(),
            busbw_gb_s=pl.col("busbw_gb_s").median(),
        )
        .sort("total_bytes", "sender", "receiver", descending=[True, False, False], nulls_last=True)
    )
