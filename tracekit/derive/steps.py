"""Where the steps of a rank lie: recorded marks, else a repeating pattern, else the whole window.

A step's window on a device runs from the first event that step launched to the first one the next
step launched, so windows tile the timeline. The last ends at the last event launched in it and is
cut; what precedes the first is no step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.activity import COLUMNS, activity
from tracekit.derive.cached import cached
from tracekit.schema.table import DEVICE, FLAG, I64, START, TEXT, Column, Table

if TYPE_CHECKING:
    from tracekit.store import Run

WINDOWS = Table(
    "step_windows",
    "window of a step on a device of one rank",
    (
        DEVICE,
        Column("step", I64, "", "number of the step"),
        START,
        Column("end_ns", I64, "ns", "end, since the run's epoch"),
        Column(
            "is_complete",
            FLAG,
            "",
            "starts at a launched event and ends where the next step starts",
        ),
        Column("is_first", FLAG, "", "the capture's first step, which warms up"),
        Column("source", TEXT, "", "where the steps come from"),
    ),
)
WHOLE = "whole window"
PATTERN = "repeating pattern"
MIN_REPEATS = 3
MAX_SPREAD_SHARE = 0.05
"""Inferred steps hold the same number of events, up to this share: other repeats are no steps."""


def windows(run: Run, rank: int) -> pl.LazyFrame:
    """Step windows of one rank (`WINDOWS`), sorted by device and start."""
    return cached(run, WINDOWS, lambda: _windows(run, rank), rank)


def spans(run: Run, rank: int) -> pl.LazyFrame:
    """Steps of one rank over all its devices: `step`, `opens_ns`, `closes_ns`, by start."""
    return (
        windows(run, rank)
        .group_by("step")
        .agg(opens_ns=pl.col("start_ns").min(), closes_ns=pl.col("end_ns").max())
        .sort("opens_ns", "step")
    )


def begun_inside(events: pl.LazyFrame, spans: pl.LazyFrame) -> pl.LazyFrame:
    """Events of one rank that begin inside one of its steps, with the `step`; sorted by start.

    Args:
        events: `start_ns` and anything but `step`.
        spans: `step`, `opens_ns`, `closes_ns`, by start.
    """
    return (
        events.sort("start_ns")
        .join_asof(spans, left_on="start_ns", right_on="opens_ns", strategy="backward")
        .filter(pl.col("start_ns") < pl.col("closes_ns"))
        .drop("opens_ns", "closes_ns")
    )


def marks(run: Run, rank: int) -> pl.DataFrame:
    """Recorded step marks: `step`, `start_ns`, `end_ns`, `source`, sorted by start.

    Marks of one number in a row are one. A number that comes back after another is a step of its
    own, as where a second loop counts anew: from there on numbers go on behind the largest.
    """
    recorded = (
        run.scan("steps", rank)
        .select(
            "step", "start_ns", (pl.col("start_ns") + pl.col("dur_ns")).alias("end_ns"), "source"
        )
        .sort("start_ns", "end_ns", "step")
        .collect()
    )
    in_a_row = pl.col("step").rle_id()
    return _numbered(
        recorded.group_by(in_a_row.alias("place"), maintain_order=True)
        .agg(pl.col("step", "start_ns", "source").first(), pl.col("end_ns").max())
        .select(recorded.columns)
    )


def _numbered(marks: pl.DataFrame) -> pl.DataFrame:
    """Marks whose numbers are unique: those of each further count follow the largest before."""
    count = pl.int_range(pl.len(), dtype=pl.Int64).over("step").cum_max()
    counted = marks.with_columns(count=count)
    counts = (
        counted.group_by("count")
        .agg(low=pl.col("step").min(), high=pl.col("step").max())
        .sort("count")
        .with_columns(lasts=pl.col("high") - pl.col("low") + 1)
        .with_columns(opens=pl.col("low").first() + pl.col("lasts").cum_sum() - pl.col("lasts"))
    )
    return (
        counted.join(counts, on="count", validate="m:1", maintain_order="left")
        .with_columns(step=pl.col("step") - pl.col("low") + pl.col("opens"))
        .select(marks.columns)
    )


def with_step(
    events: pl.LazyFrame, marks: pl.DataFrame, at: str = "launch_start_ns"
) -> pl.LazyFrame:
    """Add `step`: that of the mark which covers the launch by time, on any thread; null outside.

    Rows come back sorted by `at`, those without it last.
    """
    spans = marks.lazy().select("step", mark_start_ns="start_ns", mark_end_ns="end_ns")
    return (
        events.sort(at, nulls_last=True)
        .join_asof(spans, left_on=at, right_on="mark_start_ns", strategy="backward")
        .with_columns(step=pl.when(pl.col(at) < pl.col("mark_end_ns")).then("step"))
        .drop("mark_start_ns", "mark_end_ns")
    )


def launched(run: Run, rank: int) -> pl.LazyFrame:
    """Events of a rank (`activity`) with the `step` that launched them.

    A host that runs ahead posts the first message of a step while the one before still computes, so
    that windows cut work off. Without marks on the host, or without its launch, an event belongs to
    the step in which it begins.
    """
    events = activity(run, rank)
    recorded = marks(run, rank)
    if recorded.is_empty() or _is_on_device(recorded):
        return begun_inside(events, spans(run, rank))
    is_launched = pl.col("launch_start_ns").is_not_null()
    own = with_step(events.filter(is_launched), recorded).drop_nulls("step")
    others = begun_inside(events.filter(~is_launched), spans(run, rank))
    return pl.concat([own, others.select(*COLUMNS, "step")])


def _is_on_device(marks: pl.DataFrame) -> bool:
    return bool(marks["source"][0].endswith("on the device"))


def _windows(run: Run, rank: int) -> pl.DataFrame:
    columns = ("device", "kind", "start_ns", "end_ns", "launch_start_ns")
    events = activity(run, rank).select(columns).collect()
    if events.is_empty():
        return WINDOWS.empty()
    recorded = marks(run, rank)
    found = WINDOWS.empty()
    if recorded.height:
        at = "start_ns" if _is_on_device(recorded) else "launch_start_ns"
        found = _launched(events, recorded, at)
    if found.is_empty():
        found = pl.concat([_repeating(device) for _, device in _devices(events)])
    if found.is_empty():
        found = pl.concat([_whole(device) for _, device in _devices(events)])
    return found.sort("device", "start_ns")


def _devices(events: pl.DataFrame) -> list[tuple[int, pl.DataFrame]]:
    parts = events.partition_by("device", as_dict=True, maintain_order=True)
    return [(int(key[0]), part) for key, part in parts.items()]


def _launched(events: pl.DataFrame, recorded: pl.DataFrame, at: str) -> pl.DataFrame:
    """Windows from the first event each marked step launched."""
    first_step = recorded["step"][0]
    order = recorded.select("step", position=pl.int_range(pl.len(), dtype=pl.Int64))
    starts = (
        with_step(events.lazy(), recorded, at)
        .drop_nulls("step")
        .group_by("device", "step")
        .agg(start_ns=pl.col("start_ns").min(), last_ns=pl.col("end_ns").max())
        .join(order.lazy(), on="step", validate="m:1")
        .sort("device", "position")
        .with_columns(start_ns=pl.col("start_ns").cum_max().over("device"))
        .collect()
    )
    follows = (pl.col("position").shift(-1).over("device") - pl.col("position")) == 1
    starts = starts.with_columns(is_followed=follows.fill_null(value=False))
    return (
        _tiled(starts, recorded["source"][0])
        .with_columns(is_first=pl.col("step") == first_step)
        .select(list(WINDOWS.schema))
    )


def _tiled(starts: pl.DataFrame, source: str) -> pl.DataFrame:
    """Windows that end where the next starts, complete where that is the next step's.

    The last one ends at `last_ns` and is cut.
    """
    next_start = pl.col("start_ns").shift(-1).over("device")
    return (
        starts.with_columns(
            end_ns=pl.coalesce(next_start, "last_ns"),
            is_complete=next_start.is_not_null() & pl.col("is_followed"),
            is_first=pl.col("step") == pl.col("step").first().over("device"),
            source=pl.lit(source),
        )
        .filter(pl.col("end_ns") > pl.col("start_ns"))
        .select(list(WINDOWS.schema))
    )


def _whole(device: pl.DataFrame) -> pl.DataFrame:
    return device.select(
        device=pl.col("device").first(),
        step=pl.lit(0, dtype=pl.Int64),
        start_ns=pl.col("start_ns").min(),
        end_ns=pl.col("end_ns").max(),
        is_complete=pl.lit(value=False),
        is_first=pl.lit(value=True),
        source=pl.lit(WHOLE),
    ).filter(pl.col("end_ns") > pl.col("start_ns"))


def _repeating(device: pl.DataFrame) -> pl.DataFrame:
    """Steps told by what happens once a step: the optimizer's first kernel, else an upload.

    Layers repeat too, so the mark must be one that layers do not have, and the pieces between two
    marks must hold the same number of events.
    """
    numbered = device.sort("start_ns").with_row_index("position")
    n_events = numbered.height
    optimizer = numbered.filter(pl.col("kind") == "optimizer")
    uploads = numbered.filter(pl.col("kind") == "HtoD")
    for rows in (optimizer, uploads):
        apart = pl.col("position").cast(pl.Int64).diff().fill_null(n_events)
        bursts = rows.with_columns(apart=apart)
        if bursts.height < MIN_REPEATS:
            continue
        firsts = bursts.filter(pl.col("apart") > max(2, _burst_gap(bursts)))
        sizes = firsts["position"].cast(pl.Int64).diff().drop_nulls()
        if firsts.height < MIN_REPEATS or not _is_regular(sizes, n_events):
            continue
        starts = firsts.select(
            "device",
            step=pl.int_range(pl.len(), dtype=pl.Int64),
            start_ns="start_ns",
            last_ns=pl.lit(device["end_ns"].max(), dtype=pl.Int64),
            is_followed=pl.lit(value=True),
        )
        return _tiled(starts, PATTERN)
    return WINDOWS.empty()


def _burst_gap(bursts: pl.DataFrame) -> float:
    """The distance, in events, that ends a burst: half of the largest between two of its rows."""
    inner = bursts["apart"].slice(1)
    largest = inner.max()
    return float(largest) / 2 if isinstance(largest, int) else 2.0


def _is_regular(sizes: pl.Series, n_events: int) -> bool:
    mean, spread = sizes.mean(), sizes.std()
    if not isinstance(mean, float) or not isinstance(spread, float | None) or mean <= 0:
        return False
    covers = mean * (sizes.len() + 1) >= 0.8 * n_events
    return covers and (spread or 0.0) <= MAX_SPREAD_SHARE * mean
