"""Durations that cannot be true, found and clipped; every other overlap on a stream is real.

Seven of 55,423 events with broken durations made 62 % of the GPU time of one public trace. A
duration is broken only if it is negative, runs past the capture window, or exceeds 100 × the median
of its name while later events of its stream lie inside it. Other overlaps on one stream happen:
programmatic dependent launch, CUDA graphs, ROCm.
"""

from __future__ import annotations

import polars as pl

MEDIAN_FACTOR = 100


def clipped(rows: pl.DataFrame, window_end_ns: int | None) -> tuple[pl.DataFrame, int]:
    """Device rows of one rank, sorted by start, with broken durations clipped, and their count.

    A negative duration becomes 0; one past the window ends with it; one that swallows later events
    of its stream ends where the next of them starts.
    """
    if rows.is_empty():
        return rows, 0
    end = pl.col("start_ns") + pl.col("dur_ns")
    next_start = pl.col("start_ns").shift(-1).over("device", "stream")
    is_long = pl.col("dur_ns") > MEDIAN_FACTOR * pl.col("dur_ns").median().over("name").clip(1)
    swallows = (is_long & (next_start < end)).fill_null(value=False)
    limit = pl.lit(window_end_ns, dtype=pl.Int64)
    whole = (
        pl.when(pl.col("dur_ns") < 0)
        .then(0)
        .when(swallows)
        .then(pl.min_horizontal(next_start - pl.col("start_ns"), limit - pl.col("start_ns")))
        .when(end > limit)
        .then(pl.max_horizontal(limit - pl.col("start_ns"), 0))
        .otherwise("dur_ns")
    )
    mended = rows.with_columns(whole=whole.cast(pl.Int64))
    n_broken = mended.filter(pl.col("whole") != pl.col("dur_ns")).height
    return mended.with_columns(dur_ns="whole").drop("whole"), n_broken
