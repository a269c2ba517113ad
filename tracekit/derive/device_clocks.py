"""How fast the device of each rank was clocked, and for how long something held it back.

From the samples of telemetry that a hook recorded beside the trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.averages import breakdowns
from tracekit.derive.cached import remembered

if TYPE_CHECKING:
    from tracekit.store import Run

MIN_SLOWER_SHARE = 0.05
"""A clock lower by less is what devices of one model differ by."""
MIN_THROTTLED_SHARE = 0.1
"""Held back for this share of the time more than its peers."""


@remembered
def device_clocks(run: Run) -> pl.DataFrame:
    """Means over the samples of each rank's devices, by rank; empty where none was sampled.

    Returns:
        `rank`, `sm_clock_mhz`, `temperature_c`, `throttled_share` (of the sampled time, under the
        limit that held longest); null where a driver did not give it.
    """
    metric, value = pl.col("metric"), pl.col("value")
    is_limit = metric.str.starts_with("throttled_")
    rows = run.scan_all("telemetry").filter(pl.col("device_uuid").is_not_null())
    limited = (
        rows.filter(is_limit)
        .group_by("rank", "metric")
        .agg(share=value.sum() / ((pl.col("end_ns") - pl.col("start_ns")).sum() * 1e-9))
        .group_by("rank")
        .agg(throttled_share=pl.col("share").max())
    )
    return (
        rows.group_by("rank")
        .agg(
            sm_clock_mhz=value.filter(metric == "sm_clock_mhz").mean(),
            temperature_c=value.filter(metric == "temperature_c").mean(),
        )
        .join(limited, on="rank", how="left", validate="1:1")
        .sort("rank")
        .collect()
    )


def clock_share(run: Run) -> float | None:
    """Mean of f / f_max over ranks while their devices were busy in the averaged steps.

    f_max is the most that the driver lets the device be clocked at. None where either was not
    sampled then, of any rank.
    """
    steps = breakdowns(run).filter("is_averaged")
    spans = steps.group_by("rank").agg(
        opens_ns=pl.col("start_ns").min(),
        closes_ns=(pl.col("start_ns") + pl.col("dur_ns")).max(),
    )
    metric, value = pl.col("metric"), pl.col("value")
    wanted = ("sm_clock_mhz", "sm_clock_max_mhz", "gpu_busy_share")
    sampled = (
        run.scan_all("telemetry")
        .filter(pl.col("device_uuid").is_not_null() & metric.is_in(wanted))
        .join(spans.lazy(), on="rank")
        .filter(
            (pl.col("start_ns") < pl.col("closes_ns")) & (pl.col("end_ns") >= pl.col("opens_ns"))
        )
        .with_columns(second=pl.col("end_ns") // 10**9)
        .group_by("rank", "device_uuid", "second")
        .agg(
            f_mhz=value.filter(metric == "sm_clock_mhz").mean(),
            max_mhz=value.filter(metric == "sm_clock_max_mhz").max(),
            busy=value.filter(metric == "gpu_busy_share").max(),
        )
        .with_columns(pl.col("max_mhz").max().over("rank", "device_uuid"))
        .filter((pl.col("busy").fill_null(1.0) > 0) & (pl.col("max_mhz") > 0))
        .group_by("rank")
        .agg(share=(pl.col("f_mhz") / pl.col("max_mhz")).mean())
        .drop_nulls("share")
        .collect()
    )
    if sampled.is_empty() or sampled.height < spans.height:
        return None
    return min(1.0, float(sampled["share"].to_numpy().mean()))


def is_held_back(run: Run, ranks: tuple[int, ...], peers: tuple[int, ...]) -> bool:
    """Whether the devices of some ranks ran at a lower clock than their peers', or were throttled.

    False where nothing was sampled of either side.
    """
    own, others = _medians(run, ranks), _medians(run, peers)
    if own.get("sm_clock_mhz", 1.0) <= (1 - MIN_SLOWER_SHARE) * others.get("sm_clock_mhz", 0.0):
        return True
    usual = others.get("throttled_share", 0.0)
    return own.get("throttled_share", 0.0) >= usual + MIN_THROTTLED_SHARE


def _medians(run: Run, ranks: tuple[int, ...]) -> dict[str, float]:
    """Medians over some ranks, of what was sampled."""
    own = device_clocks(run).filter(pl.col("rank").is_in(list(ranks))).drop("rank")
    medians = own.median().row(0, named=True) if own.height else {}
    return {name: value for name, value in medians.items() if value is not None}
