"""Reductions of gradients that hold back compute which was queued and does not need them.

Backward compute never waits for a gradient that is being reduced; the optimizer does. So where no
compute runs beside a reduction, and the next kernel, queued while it ran, begins as it ends, the
device ran the two one after the other although it could have run them at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.activity import COMPUTE, activity
from tracekit.derive.averages import averaged
from tracekit.derive.cached import remembered
from tracekit.derive.call_exposure import call_exposure
from tracekit.derive.gradient_sync import REDUCTIONS
from tracekit.derive.groups import groups

if TYPE_CHECKING:
    from tracekit.store import Run

GAP_NS = 20_000
"""A kernel that waits for a stream begins within some microseconds of what it waits for."""
MIN_WAIT_NS = 20_000
"""Queued so long before the reduction ended, a kernel was held and not late."""
MIN_EXPOSED_SHARE = 0.9
"""Of a reduction beside which next to no compute ran."""
AFTER = ("optimizer", "reduction", "norm")
"""Kinds of kernels that need reduced gradients: the update, and the norm that clips them."""


@remembered
def held(run: Run) -> pl.DataFrame:
    """Reductions of data parallel groups in averaged steps, and whether each held compute back.

    Returns:
        `rank`, `step`, `group`, `operation`, `instance`, `dur_ns`, `exposed_transfer_ns`,
        `is_held`, `is_same_stream` (as the compute that it held); by rank and start.
    """
    is_data = (pl.col("dimension") == "data").fill_null(value=False)
    of_data = groups(run).filter(is_data)["group"].implode()
    calls = averaged(run, call_exposure).filter(
        pl.col("operation").is_in(REDUCTIONS) & pl.col("group").is_in(of_data)
    )
    parts = [_of_rank(run, rank, calls.filter(rank=rank)) for rank in run.ranks]
    return pl.concat(parts)


def _of_rank(run: Run, rank: int, calls: pl.DataFrame) -> pl.DataFrame:
    compute = (
        activity(run, rank)
        .filter(pl.col("class") == COMPUTE)
        .select(
            "device",
            next_ns="start_ns",
            next_kind="kind",
            next_stream="stream",
            queued_ns="launch_end_ns",
        )
        .sort("next_ns")
        .collect()
    )
    end_ns = pl.col("start_ns") + pl.col("dur_ns")
    is_alone = pl.col("exposed_ns") >= MIN_EXPOSED_SHARE * pl.col("dur_ns")
    is_next = pl.col("next_ns") - pl.col("end_ns") <= GAP_NS
    was_queued = pl.col("queued_ns") <= pl.col("end_ns") - MIN_WAIT_NS
    is_free = ~pl.col("next_kind").is_in(AFTER)
    return (
        calls.with_columns(end_ns=end_ns)
        .sort("end_ns")
        .join_asof(
            compute,
            left_on="end_ns",
            right_on="next_ns",
            by="device",
            strategy="forward",
            check_sortedness=False,
        )
        .with_columns(
            is_held=(is_alone & is_next & was_queued & is_free).fill_null(value=False),
            is_same_stream=(pl.col("stream") == pl.col("next_stream")).fill_null(value=False),
        )
        .select(
            "rank",
            "step",
            "group",
            "operation",
            "instance",
            "dur_ns",
            "exposed_transfer_ns",
            "is_held",
            "is_same_stream",
        )
    )
