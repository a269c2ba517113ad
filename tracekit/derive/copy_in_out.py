"""Copies on the device in series with a collective: tensors gathered for it, or taken apart after.

A collective takes one buffer. Where tensors lie apart, kernels concatenate them before it and split
the result after it; while they run, neither the collective does nor any other compute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.activity import COMPUTE, COPY, activity
from tracekit.derive.averages import averaged
from tracekit.derive.cached import remembered
from tracekit.derive.call_exposure import call_exposure
from tracekit.derive.intervals import covered_ns
from tracekit.derive.kernel_kinds import COMMUNICATION

if TYPE_CHECKING:
    from tracekit.store import Run

NEAR_NS = 20_000
"""A collective that waits for a copy begins within some microseconds of its end."""
COPIES = (
    r"(?i)CatArray|chunk_?cat|split_with_sizes_copy|direct_copy|copy_kernel|foreach_copy"
    r"|multi_tensor_(?:scale|copy)|all_gather_copy|cat_copy"
)
"""What frameworks call kernels that move tensors into one buffer, and out of it."""


@remembered
def series_copies(run: Run) -> pl.DataFrame:
    """Copies right before or after a collective, of averaged steps.

    Returns:
        `rank`, `device`, `stream`, `start_ns`, `end_ns`, `name`, `step`, `group`, `operation` (of
        the collective), `is_before`, and `exposed_ns`: while nothing else runs on the device.
    """
    calls = averaged(run, call_exposure)
    return pl.concat([_of_rank(run, rank, calls.filter(rank=rank)) for rank in run.ranks])


def _of_rank(run: Run, rank: int, calls: pl.DataFrame) -> pl.DataFrame:
    events = activity(run, rank).collect()
    is_copy = pl.when(pl.col("class") == COMPUTE).then(pl.col("name").str.contains(COPIES))
    is_inside = pl.col("name").str.contains("DtoD")
    is_one = pl.when(pl.col("class") == COPY).then(is_inside).otherwise(is_copy)
    copies = _runs(events.filter(is_one.fill_null(value=False)))
    others = events.filter(
        (pl.col("class") == COMMUNICATION)
        | ((pl.col("class") == COMPUTE) & ~is_copy.fill_null(value=False))
    )
    end_ns = pl.col("start_ns") + pl.col("dur_ns")
    calls = calls.select("device", "step", "group", "operation", "start_ns", end_ns=end_ns)
    before = _near(copies, calls, "run_end_ns", "start_ns", "forward", is_before=True)
    after = _near(copies, calls, "run_start_ns", "end_ns", "backward", is_before=False)
    found = pl.concat([before, after]).unique(["device", "stream", "start_ns"], keep="first")
    hidden_ns = covered_ns(found, others, "device")
    return (
        found.with_columns(rank=pl.lit(rank, pl.Int64), hidden_ns=hidden_ns)
        .with_columns(exposed_ns=pl.col("end_ns") - pl.col("start_ns") - pl.col("hidden_ns"))
        .select(
            "rank",
            "device",
            "stream",
            "start_ns",
            "end_ns",
            "name",
            "step",
            "group",
            "operation",
            "is_before",
            "exposed_ns",
        )
        .sort("start_ns", "stream")
    )


def _runs(copies: pl.DataFrame) -> pl.DataFrame:
    """Copies with the start and end of the run that each is part of: one right after the other."""
    reached = pl.col("end_ns").cum_max().shift(1).over("device")
    is_new = (pl.col("start_ns") - reached > NEAR_NS).fill_null(value=True)
    here = ("device", "run")
    return (
        copies.sort("device", "start_ns")
        .with_columns(run=is_new.cum_sum().over("device"))
        .with_columns(
            run_start_ns=pl.col("start_ns").min().over(here),
            run_end_ns=pl.col("end_ns").max().over(here),
        )
    )


def _near(
    copies: pl.DataFrame,
    calls: pl.DataFrame,
    edge: str,
    other_edge: str,
    strategy: str,
    *,
    is_before: bool,
) -> pl.DataFrame:
    """Copies whose run ends right before a collective begins, or begins right after one ended."""
    called = calls.select("device", "step", "group", "operation", call_ns=other_edge)
    return (
        copies.sort(edge)
        .join_asof(
            called.sort("call_ns"),
            left_on=edge,
            right_on="call_ns",
            by="device",
            strategy=strategy,  # type: ignore[arg-type]
            tolerance=NEAR_NS,
            check_sortedness=False,
        )
        .drop_nulls("call_ns")
        .select(
            "device",
            "stream",
            "start_ns",
            "end_ns",
            "name",
            "step",
            "group",
            "operation",
            is_before=pl.lit(is_before),
        )
    )
