"""What of the transfers in averaged steps no compute hides, also where waiting is not known.

Where waiting inside a call is not known (messages, uneven all-to-all), its transfer is that of the
instance, and shows as far as the call does. Of a message the receiver's part shows: nothing on the
sender waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.averages import averaged
from tracekit.derive.cached import remembered
from tracekit.derive.call_exposure import call_exposure
from tracekit.derive.traffic import traffic

if TYPE_CHECKING:
    from tracekit.store import Run


@remembered
def shown_transfers(run: Run) -> pl.DataFrame:
    """Matched calls of averaged steps but sends, with their transfer.

    Returns:
        `rank` and the columns of `CALL_EXPOSURE`, `transfer_ns` and `exposed_transfer_ns` filled as
        far as the instance says; by rank and start.
    """
    own = traffic(run).drop_nulls("instance").select("instance", own_ns="transfer_ns").collect()
    return (
        averaged(run, call_exposure)
        .filter((pl.col("operation") != "send").fill_null(value=True))
        .join(own, on="instance", validate="m:1", maintain_order="left")
        .with_columns(
            pl.coalesce("exposed_transfer_ns", pl.min_horizontal("exposed_ns", "own_ns")),
            pl.coalesce("transfer_ns", pl.min_horizontal("dur_ns", "own_ns")),
        )
        .drop("own_ns")
    )
