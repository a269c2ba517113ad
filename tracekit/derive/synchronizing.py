"""Which collectives hold all their members until the last one has entered."""

from __future__ import annotations

import polars as pl

from tracekit.derive.kernel_kinds import SYNCHRONIZING

MAX_BYTES_SPREAD_SHARE = 0.01
"""Members of one instance may differ by this share: FSDP's last rank has some elements less."""


def is_split() -> pl.Expr:
    """Whether waiting and transfer of an instance can be told apart without clocks.

    Over rows of `INSTANCES`: matched, of one operation that nobody leaves early, of equal bytes.
    """
    nbytes = pl.col("bytes_in")
    largest = nbytes.max().over("instance")
    is_even = (largest - nbytes.min().over("instance")) <= MAX_BYTES_SPREAD_SHARE * largest
    return (
        pl.col("instance").is_not_null()
        & (pl.col("n_seen") > 1)
        & pl.col("operation").is_in(list(SYNCHRONIZING))
        & (pl.col("operation").n_unique().over("instance") == 1)
        & pl.col("has_even_splits").all().over("instance")
        & is_even.fill_null(value=True)
    ).fill_null(value=False)
