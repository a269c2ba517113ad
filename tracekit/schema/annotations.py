"""One row per user annotation, on the host or, as a span over kernels, on a device."""

from __future__ import annotations

from tracekit.schema.table import DEVICE, DUR, NAME, START, STREAM, THREAD, Table

ANNOTATIONS = Table(
    "annotations",
    "user annotation; device and stream are null on the host, thread is null on the device",
    (START, DUR, NAME, THREAD, DEVICE, STREAM),
)
