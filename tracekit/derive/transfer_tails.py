"""Collectives whose transfer takes far longer than is usual for their group and size.

Messages are compared with those of the same two ranks; what copies or compute beside it explain
(`contention`) is no tail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.cached import remembered
from tracekit.derive.contention import contended
from tracekit.derive.traffic import comparable

if TYPE_CHECKING:
    from tracekit.store import Run

MIN_CALLS = 8
"""Of fewer the median says little about what is usual."""
TAIL_RATIO = 2.0
"""Transfers on healthy fabrics stay below twice their median, the first of a communicator apart."""
_SAME = ("group", "operation", "size_bytes", "sender", "receiver")


@remembered
def tails(run: Run) -> pl.DataFrame:
    """Instances in the tail, of those all of whose members were recorded, by start.

    Returns:
        `instance`, `group`, `operation`, `size_bytes`, `transfer_ns`, `usual_ns` (the median).
    """
    transfer = pl.col("transfer_ns")
    return (
        comparable(run)
        .join(contended(run).lazy().select("instance"), on="instance", how="anti")
        .with_columns(usual_ns=transfer.median().over(_SAME), n=pl.len().over(_SAME))
        .filter((pl.col("n") >= MIN_CALLS) & (transfer >= TAIL_RATIO * pl.col("usual_ns")))
        .sort("start_ns")
        .select("instance", "group", "operation", "size_bytes", "transfer_ns", "usual_ns")
        .collect()
    )
