"""Compute kernels of each rank over the averaged steps: how many, how long.

Two kernels are the same where their name and the work of one are: a larger grid, or an operator on
larger shapes, is more work and no slower device. Where neither shows it, the lengths of samples do,
if the loop told them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.activity import COMPUTE, activity
from tracekit.derive.averages import compared
from tracekit.derive.cached import cached, remembered
from tracekit.derive.samples import squared_lengths
from tracekit.derive.steps import windows
from tracekit.schema.table import DEVICE, I64, NAME, TEXT, Column, Table

if TYPE_CHECKING:
    from tracekit.store import Run

KERNEL_TOTALS = Table(
    "kernel_totals",
    "compute kernel of one name and size in one step of one rank",
    (
        DEVICE,
        Column("step", I64, "", "step in whose window the kernels start"),
        NAME,
        Column("kind", TEXT, "", "kind of the kernel"),
        Column("work", TEXT, "", "grid or shapes; null when not recorded"),
        Column("n_kernels", I64, "", "how many started"),
        Column("total_ns", I64, "ns", "sum of their durations"),
    ),
)
_SAME = ["name", "kind", "work"]


def kernel_totals(run: Run, rank: int) -> pl.LazyFrame:
    """Totals of one rank (`KERNEL_TOTALS`), sorted by device, step, name and work."""
    return cached(run, KERNEL_TOTALS, lambda: _totals(run, rank), rank)


@remembered
def same_kernels(run: Run, steps: tuple[int, ...]) -> pl.DataFrame:
    """Kernels of each rank over some steps: `rank`, name, kind, work, `n_kernels`, `total_ns`."""
    rows = compared(run, kernel_totals, steps).group_by("rank", *_SAME)
    return rows.agg(pl.col("n_kernels", "total_ns").sum()).collect()


@remembered
def differences(run: Run, steps: tuple[int, ...]) -> pl.DataFrame:
    """How each rank's compute differs from the median rank, in ns a step: slower, or more of it.

    Returns:
        `rank`, `slower_ns` (same kernels, longer than the median rank's mean), `more_ns` (more,
        fewer or other kernels than the median rank's, or the same on longer samples), `kind` (kind
        that differs most); sorted by rank. Both are Float64, whole ns (sums of doubles depend on
        their order), maybe negative.
    """
    rows = same_kernels(run, steps)
    kernels = rows.select(_SAME).unique()
    grid = kernels.join(pl.DataFrame({"rank": list(run.ranks)}), how="cross").join(
        rows, on=["rank", *_SAME], how="left", nulls_equal=True, validate="1:1"
    )
    mean_ns = pl.col("total_ns") / pl.col("n_kernels")
    typical_ns = mean_ns.median().over("name", "work")
    count = pl.col("n_kernels").fill_null(0)
    typical_count = count.median().over("name", "work")
    n_steps = max(len(steps), 1)
    detail = grid.sort("rank", *_SAME, nulls_last=True).with_columns(
        slower_ns=((mean_ns - typical_ns) * count).fill_null(0.0) / n_steps,
        more_ns=((count - typical_count) * typical_ns).fill_null(0.0) / n_steps,
    )
    by_kind = (
        detail.group_by("rank", "kind", maintain_order=True)
        .agg(both=(pl.col("slower_ns") + pl.col("more_ns")).sum().round())
        .sort("rank", "both", "kind", descending=[False, True, False])
        .unique("rank", keep="first", maintain_order=True)
        .select("rank", "kind")
    )
    totals = detail.group_by("rank", maintain_order=True).agg(
        pl.col("slower_ns", "more_ns").sum().round(), total_ns=pl.col("total_ns").sum() / n_steps
    )
    return (
        _with_longer_samples(totals, _work_told(run, steps))
        .join(by_kind, on="rank", how="left", validate="1:1")
        .sort("rank")
    )


def more_work_ns(
    run: Run, ranks: tuple[int, ...], peers: tuple[int, ...], steps: tuple[int, ...]
) -> float:
    """Compute that ranks had more of than their median peer, in the steps in which they had, ns.

    A step, summed over the ranks. All kernels of one name and work count by their mean, so that a
    slow device has no more of them.
    """
    every = compared(run, kernel_totals, steps, {*ranks, *peers})
    mean_ns = pl.col("total_ns").sum() / pl.col("n_kernels").sum()
    work = (
        every.with_columns(work_ns=pl.col("n_kernels") * mean_ns.over(_SAME))
        .group_by("rank", "step")
        .agg(pl.col("work_ns").sum())
    )
    usual = (
        work.filter(pl.col("rank").is_in(list(peers)))
        .group_by("step")
        .agg(usual_ns=pl.col("work_ns").median())
    )
    more = (
        work.filter(pl.col("rank").is_in(list(ranks)))
        .join(usual, on="step", validate="m:1")
        .select((pl.col("work_ns") - pl.col("usual_ns")).clip(0).sum())
    )
    return float(more.collect().item()) / max(len(steps), 1)


def _work_told(run: Run, steps: tuple[int, ...]) -> pl.DataFrame:
    """Work of each rank as the loop told it: `rank`, `told`."""
    told = squared_lengths(run).filter(pl.col("step").is_in(list(steps)))
    by_rank = told.group_by("rank").agg(pl.col("told").sum())
    return by_rank if by_rank.height == len(run.ranks) else by_rank.clear()


def _with_longer_samples(totals: pl.DataFrame, told: pl.DataFrame) -> pl.DataFrame:
    """Take what the same kernels take longer on longer samples for more work, as far as it may be.

    `totals` has `rank`, `slower_ns`, `more_ns` and `total_ns`, which goes.
    """
    more_share = (pl.col("told") / pl.col("told").median() - 1).clip(0).fill_null(0.0)
    usual_ns = pl.col("total_ns") - pl.col("slower_ns")
    explained_ns = pl.min_horizontal(pl.col("slower_ns").clip(0), more_share * usual_ns)
    return (
        totals.join(told, on="rank", how="left", validate="1:1", maintain_order="left")
        .with_columns(moved_ns=explained_ns.fill_nan(0.0).round())
        .select(
            "rank",
            slower_ns=pl.col("slower_ns") - pl.col("moved_ns"),
            more_ns=pl.col("more_ns") + pl.col("moved_ns"),
        )
    )


def _totals(run: Run, rank: int) -> pl.DataFrame:
    events = activity(run, rank).filter(pl.col("class") == COMPUTE).sort("start_ns").collect()
    opened = windows(run, rank).select("device", "step", opens_ns="start_ns", closes_ns="end_ns")
    return (
        events.join_asof(
            opened.sort("opens_ns").collect(),
            left_on="start_ns",
            right_on="opens_ns",
            by="device",
            strategy="backward",
            check_sortedness=False,
        )
        .filter(pl.col("start_ns") < pl.col("closes_ns"))
        .group_by("device", "step", *_SAME)
        .agg(
            n_kernels=pl.len().cast(pl.Int64),
            total_ns=(pl.col("end_ns") - pl.col("start_ns")).sum(),
        )
        .sort("device", "step", "name", "work")
        .select(list(KERNEL_TOTALS.schema))
    )
