"""Interval algebra: half-open [start, end) in integer ns, vectorised, one sweep for everything.

A sweep cuts time at every start and end and counts, in each piece, how many intervals of each class
are open. Unions, gaps, overlaps and differences are sums over its pieces, so that parts always add
up exactly. Input need not be sorted; intervals of zero length take no time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Sequence


def sweep(
    intervals: pl.LazyFrame, classes: Sequence[str], keys: Sequence[str] = ()
) -> pl.LazyFrame:
    """Pieces of time between consecutive starts and ends, with the open intervals of each class.

    Args:
        intervals: `keys`, `class` (text), `start_ns`, `end_ns`. A class that is not among `classes`
            cuts time without being counted.
        classes: names of the classes to count.
        keys: columns that tell timelines apart (rank, device).

    Returns:
        `keys`, `start_ns`, `end_ns` and one column `n_<class>` (Int64) each, sorted by keys and
        start. Pieces between the first start and the last end of a timeline, gaps included; never
        empty ones.
    """
    keys = list(keys)
    counts = [f"n_{name}" for name in classes]

    def edges(at: str, sign: int) -> pl.LazyFrame:
        return intervals.filter(pl.col("end_ns") >= pl.col("start_ns")).select(
            *keys,
            at_ns=at,
            **{f"n_{name}": sign * (pl.col("class") == name).cast(pl.Int64) for name in classes},
        )

    over = {"partition_by": keys} if keys else {"partition_by": pl.lit(1)}
    return (
        pl.concat([edges("start_ns", 1), edges("end_ns", -1)])
        .group_by(*keys, "at_ns")
        .agg(pl.col(counts).sum())
        .sort(*keys, "at_ns")
        .select(
            *keys,
            start_ns="at_ns",
            end_ns=pl.col("at_ns").shift(-1).over(**over),
            **{name: pl.col(name).cum_sum().over(**over) for name in counts},
        )
        .drop_nulls("end_ns")
    )


def union(intervals: pl.LazyFrame, keys: Sequence[str] = ()) -> pl.LazyFrame:
    """Disjoint intervals that cover the same time: `keys`, `start_ns`, `end_ns`, sorted.

    Intervals that touch are joined; those of zero length vanish.
    """
    keys = list(keys)
    over = {"partition_by": keys} if keys else {"partition_by": pl.lit(1)}
    reached = pl.col("end_ns").cum_max().shift(1).over(**over)
    is_new = (pl.col("start_ns") > reached).fill_null(value=True)
    return (
        intervals.filter(pl.col("end_ns") > pl.col("start_ns"))
        .sort(*keys, "start_ns")
        .with_columns(island=is_new.cum_sum().over(**over))
        .group_by(*keys, "island")
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max())
        .sort(*keys, "start_ns")
        .select(*keys, "start_ns", "end_ns")
    )


def length_ns(intervals: pl.LazyFrame, keys: Sequence[str] = ()) -> pl.LazyFrame:
    """Length of the union: `keys`, `dur_ns`; without keys one row, 0 where there is no interval."""
    spans = union(intervals, keys)
    total = (pl.col("end_ns") - pl.col("start_ns")).sum().alias("dur_ns")
    return spans.group_by(*keys).agg(total).sort(*keys) if keys else spans.select(total)


def gaps(intervals: pl.LazyFrame, keys: Sequence[str] = ()) -> pl.LazyFrame:
    """Time between the intervals of a union: `keys`, `start_ns`, `end_ns`, sorted, none empty."""
    keys = list(keys)
    over = {"partition_by": keys} if keys else {"partition_by": pl.lit(1)}
    return (
        union(intervals, keys)
        .select(
            *keys,
            start_ns="end_ns",
            end_ns=pl.col("start_ns").shift(-1).over(**over),
        )
        .drop_nulls("end_ns")
    )


def covered_ns(parts: pl.DataFrame, intervals: pl.DataFrame, by: str) -> pl.Series:
    """Nanoseconds of each part that the union of the intervals covers, in the order of `parts`.

    Args:
        parts: `by`, `start_ns`, `end_ns`; a null in `by` meets no interval.
        intervals: `by`, `start_ns`, `end_ns`; sorted or not.
        by: column that tells timelines apart (thread, device).
    """
    if intervals.is_empty():  # as of most classes of host work: a join of nothing takes 4 ms
        return pl.zeros(parts.height, dtype=pl.Int64, eager=True).alias("covered_ns")
    length = pl.col("end_ns") - pl.col("start_ns")
    spans = (
        union(intervals.lazy().select(by, "start_ns", "end_ns"), [by])
        .with_columns(before_ns=length.cum_sum().over(by) - length)
        .sort("start_ns")
        .collect()
    )

    edges = pl.concat([parts.select(by, at_ns=edge) for edge in ("start_ns", "end_ns")])
    found = (
        edges.with_row_index("row")
        .sort("at_ns")
        .join_asof(
            spans,
            left_on="at_ns",
            right_on="start_ns",
            by=by,
            strategy="backward",
            check_sortedness=False,
        )
        .sort("row")
    )
    inside = pl.min_horizontal("at_ns", "end_ns") - pl.col("start_ns")
    until = found.select((pl.col("before_ns") + inside).fill_null(0)).to_series()
    return (until.slice(parts.height) - until.slice(0, parts.height)).alias("covered_ns")
