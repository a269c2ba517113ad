"""Metrics that Nsight sampled on a device (`--gpu-metrics-devices`), as rows of telemetry.

Samples, 10,000 a second by default, become means of ten milliseconds. Shares are written as whole
percents. The device of a sample is the low byte of its type. Metrics of other names are not kept.

Format: GPU_METRICS and TARGET_INFO_GPU_METRICS of the SQLite schema reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.collectors.nsys_export.devices import described
from tracekit.schema import TELEMETRY

if TYPE_CHECKING:
    from tracekit.collectors.nsys_export.opened import Export
    from tracekit.collectors.nsys_export.places import Place

SAMPLES, NAMES = "GPU_METRICS", "TARGET_INFO_GPU_METRICS"
BUCKET_NS = 10_000_000
DEVICE_MASK = 0xFF
METRICS = {
    "SMs Active": ("sm_busy_share", 0.01),
    "GR Active": ("graphics_busy_share", 0.01),
    "Tensor Active": ("tensor_busy_share", 0.01),
    "DRAM Read Bandwidth": ("dram_busy_share", 0.01),
    "DRAM Write Bandwidth": ("dram_busy_share", 0.01),
    "GPC Clock Frequency": ("sm_clock_mhz", 1.0),
}
"""Ours, and what a value is worth in its unit. What is read and written fill DRAM together."""


def gpu_metrics(export: Export, place: Place, used: set[int], shift_ns: int) -> pl.DataFrame:
    """Means of each metric of the devices that a rank used (`TELEMETRY`), by start and metric."""
    known = described(export, place, used)
    uuids = {
        facts["id"]: facts.get("uuid") or f"GPU {facts['id']} of Nsight"
        for facts in known.values()
        if facts.get("id") is not None
    }
    names = export.all_rows(NAMES, {"typeId": "number", "metricId": "number", "metricName": "text"})
    unit = pl.col("metricName").str.strip_chars().str.replace(r" \[.*\]$", "")
    ours = pl.DataFrame(
        [(name, metric, worth) for name, (metric, worth) in METRICS.items()],
        schema={"named": pl.String, "metric": pl.String, "worth": pl.Float64},
        orient="row",
    )
    wanted = (
        names.with_columns(named=unit)
        .join(ours, on="named", validate="m:1")
        .unique(["typeId", "metricId"], keep="first")
    )
    columns = {"timestamp": "number", "typeId": "number", "metricId": "number", "value": "real"}
    found = [
        _summed(some.join(wanted, on=["typeId", "metricId"], validate="m:1"), uuids)
        for some in export.rows(SAMPLES, columns, order="timestamp")
    ]
    return _means(pl.concat(found), shift_ns) if found else TELEMETRY.empty()


def _summed(samples: pl.DataFrame, uuids: dict[int, str]) -> pl.DataFrame:
    """Sums of some samples by device, metric and bucket; parts of one metric add up."""
    device = (pl.col("typeId") & DEVICE_MASK).replace_strict(
        uuids, default=None, return_dtype=pl.String
    )
    return (
        samples.with_columns(device_uuid=device, bucket=pl.col("timestamp") // BUCKET_NS)
        .drop_nulls(["device_uuid", "bucket", "value"])
        .group_by("device_uuid", "metric", "bucket")
        .agg(
            total=(pl.col("value") * pl.col("worth")).sum(),
            n=pl.len() / pl.col("named").n_unique(),
        )
    )


def _means(sums: pl.DataFrame, shift_ns: int) -> pl.DataFrame:
    here = ("device_uuid", "metric", "bucket")
    start_ns = pl.col("bucket") * BUCKET_NS + shift_ns
    return (
        sums.group_by(here)
        .agg(value=pl.col("total").sum() / pl.col("n").sum())
        .select(
            start_ns=start_ns,
            end_ns=start_ns + BUCKET_NS,
            device_uuid="device_uuid",
            part=pl.lit(None, dtype=pl.String),
            metric="metric",
            value="value",
            source=pl.lit("nsys"),
        )
        .sort("start_ns", "device_uuid", "metric")
        .cast(TELEMETRY.schema)
    )
