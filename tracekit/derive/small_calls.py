"""Collectives that cost their start more than their bytes, and what merging them would buy.

Only those of data parallel groups: what they move is there at the end of the backward pass, so that
buckets can hold it. Collectives of the other dimensions wait for each other through compute. The
start of a call is the latency of the line through the medians of all sizes (`latency_fit`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.averages import averaged
from tracekit.derive.cached import remembered
from tracekit.derive.call_exposure import call_exposure
from tracekit.derive.communication import lines
from tracekit.derive.groups import groups
from tracekit.derive.traffic import traffic

if TYPE_CHECKING:
    from tracekit.store import Run

BUCKET_BYTES = 25_000_000
"""What DistributedDataParallel puts into a bucket by default."""
MAX_FIT_ERROR = 0.3
"""A line that misses the medians by more does not tell latency and bytes apart."""
_STEP = ["rank", "step", "group", "operation"]


@remembered
def small_calls(run: Run) -> pl.DataFrame:
    """Latency-bound calls of averaged steps, by rank, with what each would take in a bucket.

    Returns:
        `rank`, `step`, `group`, `operation`, `instance`, `size_bytes`, `took_ns` (the transfer of
        the instance), `merged_ns` (its bytes, and its part of the starts of as many buckets as the
        small calls of its step fill), `latency_ns`, `n_buckets` and `n_calls` of the step, and what
        of what it would save is exposed, `exposed_gain_ns`.
    """
    is_data = (pl.col("dimension") == "data").fill_null(value=False)
    sizes = traffic(run).select("instance", "size_bytes", took_ns="transfer_ns").collect()
    bytes_ns = pl.col("size_bytes") * pl.col("ns_per_byte")
    n_buckets = (pl.col("size_bytes").sum().over(_STEP) / BUCKET_BYTES).ceil()
    starts_ns = pl.col("latency_ns") * pl.col("n_buckets") / pl.col("n_calls")
    return (
        averaged(run, call_exposure)
        .join(groups(run).filter(is_data).select("group"), on="group", how="semi")
        .join(sizes.drop_nulls(), on="instance", validate="m:1")
        .join(lines(run), on=["group", "operation"], validate="m:1")
        .filter((pl.col("error_share") <= MAX_FIT_ERROR) & (bytes_ns < pl.col("latency_ns")))
        .with_columns(n_calls=pl.len().over(_STEP), n_buckets=n_buckets)
        .with_columns(merged_ns=pl.min_horizontal(bytes_ns + starts_ns, "took_ns"))
        .with_columns(
            exposed_gain_ns=pl.min_horizontal(
                pl.col("exposed_transfer_ns").fill_null(0), pl.col("took_ns") - pl.col("merged_ns")
            )
        )
        .select(
            *_STEP,
            "instance",
            "size_bytes",
            "took_ns",
            "merged_ns",
            "latency_ns",
            "n_buckets",
            "n_calls",
            "exposed_gain_ns",
        )
        .sort("rank", "instance")
    )
