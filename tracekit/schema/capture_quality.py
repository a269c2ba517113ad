"""One row per check of how well a rank was captured that left a remark."""

from __future__ import annotations

from tracekit.schema.table import I64, TEXT, Column, Table

CAPTURE_QUALITY = Table(
    "capture_quality",
    "remark on the capture",
    (
        Column("check", TEXT, "", "name of the check"),
        Column("severity", TEXT, "", "warning: figures are affected; info: they rest on less"),
        Column("count", I64, "", "events or calls it concerns"),
        Column("detail", TEXT, "", "what it means"),
    ),
)
