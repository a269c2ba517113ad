"""One row per size that nccl-tests or rccl-tests measured, out of place and in place."""

from __future__ import annotations

from tracekit.schema.table import F64, FLAG, I64, TEXT, Column, Table

BANDWIDTH_BASELINES = Table(
    "bandwidth_baselines",
    "measurement of nccl-tests",
    (
        Column("operation", TEXT, "", "all_reduce, all_gather …; null when the output leaves open"),
        Column("dtype", TEXT, "", "element type"),
        Column("size_bytes", I64, "bytes", "bytes as nccl-tests count them"),
        Column("n_ranks", I64, "", "ranks that took part; null when not listed"),
        Column("n_nodes", I64, "", "nodes they were on; null when not listed"),
        Column("hosts", TEXT, "", "their names, with commas between; null when not listed"),
        Column("gpu_model", TEXT, "", "device name of rank 0; null when not listed"),
        Column("time_ns", I64, "ns", "mean time of one call"),
        Column("algbw_gb_per_s", F64, "GB/s", "size / time"),
        Column("busbw_gb_per_s", F64, "GB/s", "algbw × factor of the operation"),
        Column("is_in_place", FLAG, "", "whether input and output are one buffer"),
        Column("n_wrong", I64, "", "wrong elements; null where they were not checked"),
    ),
)
