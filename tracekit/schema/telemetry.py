"""One row per sample of one metric of a device or of its host."""

from __future__ import annotations

from tracekit.schema.table import F64, I64, START, TEXT, Column, Table

TELEMETRY = Table(
    "telemetry",
    "sample of one metric",
    (
        START,
        Column("end_ns", I64, "ns", "end, since the run's epoch; the start of a point in time"),
        Column("device_uuid", TEXT, "", "as the driver writes it; null for the host"),
        Column("part", TEXT, "", "interface, disk or port of the host; null for all of it"),
        Column("metric", TEXT, "", "what was sampled; its name ends in the unit"),
        Column("value", F64, "", "in that unit; mean or sum over the interval, or of the point"),
        Column("source", TEXT, "", "nvml, nvml-gpm, amdsmi, nsys, proc, psutil, infiniband …"),
    ),
)
