"""Why a device was idle: each gap cut into launch latency, dependency and the host's part.

For a gap [g0, g1) and the launch call [l0, l1) of the event that ends it: no launch in the file →
not recorded; l1 ≤ g0 → launch latency up to the device's own floor, above it a dependency; else
[g0, min(l1, g1)) is the host's and the rest launch latency. Causes are exclusive and sum to idle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.activity import activity
from tracekit.derive.cached import cached
from tracekit.derive.host_causes import with_cause
from tracekit.derive.intervals import gaps
from tracekit.derive.steps import windows
from tracekit.schema.table import DEVICE, DUR, I64, START, TEXT, Column, Table

if TYPE_CHECKING:
    from tracekit.store import Run

IDLE = Table(
    "idle",
    "part of an idle gap on a device of one rank",
    (
        DEVICE,
        Column("step", I64, "", "step whose window holds the start; null outside all"),
        START,
        DUR,
        Column("cause", TEXT, "", "host-sync, input-pipeline, launch-overhead, host-other, …"),
        Column(
            "meanwhile", TEXT, "", "what the host did for most of the part; empty: not its part"
        ),
        Column("detail", TEXT, "", "host call in which the part fell, or that came before it"),
    ),
)
NOT_RECORDED, LATENCY, DEPENDENCY, HOST = "not recorded", "launch latency", "dependency", "host"
LATENCY_FLOOR_NS = 20_000
"""Most a device takes to start a launched kernel: 1–2 µs on NVIDIA, 9 µs on MI300."""
MAX_SKEW_NS = 200_000


def idle(run: Run, rank: int) -> pl.LazyFrame:
    """Idle parts of one rank's devices (`IDLE`), sorted by device and start; their sum is idle."""
    return cached(run, IDLE, lambda: _idle(run, rank), rank)


def _idle(run: Run, rank: int) -> pl.DataFrame:
    launch = ("launch_start_ns", "launch_end_ns", "launch_thread")
    events = activity(run, rank).select("device", "start_ns", "end_ns", "stream", *launch).collect()
    if events.is_empty():
        return IDLE.empty()
    parts = _parts(_with_launch(events))
    host = parts.filter(pl.col("cause") == HOST).drop("cause")
    nothing = {"meanwhile": pl.lit(""), "detail": pl.lit("")}
    rest = parts.filter(pl.col("cause") != HOST).with_columns(**nothing)
    named = with_cause(run, rank, host, skew_ns(events)) if host.height else rest.clear()
    steps = windows(run, rank).select("device", "step", opens_ns="start_ns", closes_ns="end_ns")
    return (
        pl.concat([named.select(rest.columns), rest])
        .sort("start_ns")
        .join_asof(
            steps.sort("opens_ns").collect(),
            left_on="start_ns",
            right_on="opens_ns",
            by="device",
            strategy="backward",
            check_sortedness=False,
        )
        .with_columns(
            step=pl.when(pl.col("start_ns") < pl.col("closes_ns")).then("step"),
            dur_ns=pl.col("end_ns") - pl.col("start_ns"),
        )
        .select(list(IDLE.schema))
        .sort("device", "start_ns")
    )


def _with_launch(events: pl.DataFrame) -> pl.DataFrame:
    """Gaps of each device with the launch of the event that ends them, the earliest of several."""
    firsts = (
        events.filter(pl.col("end_ns") > pl.col("start_ns"))
        .sort("device", "start_ns", "launch_end_ns", "stream", nulls_last=True)
        .unique(["device", "start_ns"], keep="first", maintain_order=True)
    )
    return (
        gaps(events.lazy(), ["device"])
        .collect()
        .join(
            firsts.select("device", "launch_end_ns", "launch_thread", end_ns="start_ns"),
            on=["device", "end_ns"],
            how="left",
            validate="m:1",
        )
    )


def skew_ns(events: pl.DataFrame) -> int:
    """How early the device's times are, at least: nothing starts before the call that launched it.

    Some captures convert device times badly: whole traces lie up to some tens of µs early.
    """
    early = (pl.col("launch_start_ns") - pl.col("start_ns")).max()
    found = events.select(early=early.fill_null(0).clip(0, MAX_SKEW_NS)).item()
    return int(found)


def floor_ns() -> pl.Expr:
    """A device's own launch latency: p99 of the gaps whose event was launched before, bounded."""
    is_queued = pl.col("launch_end_ns") <= pl.col("start_ns")
    length = pl.col("end_ns") - pl.col("start_ns")
    p99 = length.filter(is_queued).quantile(0.99, "nearest").over("device")
    return pl.min_horizontal(p99.fill_null(LATENCY_FLOOR_NS), LATENCY_FLOOR_NS).cast(pl.Int64)


def _parts(found: pl.DataFrame) -> pl.DataFrame:
    """Cut each gap: device, launch_thread, start_ns, end_ns, cause. Parts of no length vanish."""
    is_queued = pl.col("launch_end_ns") <= pl.col("start_ns")
    host_end = pl.min_horizontal("launch_end_ns", "end_ns").clip(lower_bound=pl.col("start_ns"))
    floor_end = pl.min_horizontal(pl.col("start_ns") + floor_ns(), "end_ns")
    cut = found.with_columns(
        host_end_ns=host_end,
        latency_end_ns=pl.when(is_queued).then(floor_end).otherwise("end_ns"),
    )
    missing, recorded = pl.col("launch_end_ns").is_null(), pl.col("launch_end_ns").is_not_null()
    pieces = [
        cut.filter(where).select(
            "device", "launch_thread", start_ns=start, end_ns=end, cause=pl.lit(cause)
        )
        for cause, where, start, end in (
            (NOT_RECORDED, missing, "start_ns", "end_ns"),
            (HOST, recorded, "start_ns", "host_end_ns"),
            (LATENCY, recorded, "host_end_ns", "latency_end_ns"),
            (DEPENDENCY, recorded, "latency_end_ns", "end_ns"),
        )
    ]
    return pl.concat(pieces).filter(pl.col("end_ns") > pl.col("start_ns"))
