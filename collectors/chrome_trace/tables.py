"""Tables of one rank while its file is read: device tables kept, host tables written in groups.

Device tables are small and are sorted as a whole; host tables are sorted inside each row group and
stay in file order between them, so that memory does not grow with the file.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from tracekit.collectors.chrome_trace import communication
from tracekit.collectors.chrome_trace.columns import BUILDERS, CATEGORIES
from tracekit.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.collectors.chrome_trace.events import Event
    from tracekit.store import TableWriter

DEVICE_TABLES = ("kernels", "copies", "annotations", "syncs")
"""Kept in memory until the end of the file."""


MAX_DUR_NS = 1 << 60
"""36 years: what is longer is no duration."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Added to a file's times to get those of the run; whether they count from the file's zero."""

    shift_ns: int
    is_from_zero: bool = False


@dataclass(slots=True)
class Collected:
    """What has been read of one rank: kept frames, rows for joins, counts, the capture window."""

    kept: dict[str, list[pl.DataFrame]] = field(default_factory=dict)
    calls: list[pl.DataFrame] = field(default_factory=list)
    communication: list[pl.DataFrame] = field(default_factory=list)
    n_by_category: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    windows: list[tuple[int, int]] = field(default_factory=list)
    n_negative: int = 0

    def frame(self, table: str) -> pl.DataFrame:
        """All kept rows of a table, sorted by start."""
        frames = self.kept.get(table)
        if not frames:
            return TABLES[table].empty()
        return pl.concat(frames).sort("start_ns", maintain_order=True)


def grouped(events: Sequence[Event], counts: Counter[str]) -> dict[str, list[Event]]:
    """Events by the table that holds them; metadata, flows, counters and marks belong to none."""
    groups: dict[str, list[Event]] = {}
    for event in events:
        phase = event.ph
        if phase == "X":
            table = CATEGORIES.get(event.cat)
            if table is None:
                table = "windows" if event.cat == "Trace" else "other_events"
            elif event.cat == "mtia_ccp_events" and event.name == "dma_request":
                table = "copies"
            elif table == "cpu_ops" and event.name.startswith("ProfilerStep#"):
                table = "annotations"
            counts[event.cat] += 1
        elif phase == "i" and event.name == "[memory]":
            table = "memory"
        else:
            continue
        group = groups.get(table)
        if group is None:
            groups[table] = group = []
        group.append(event)
    return groups


def complete(rows: pl.DataFrame, clock: Clock, dropped: Counter[str]) -> pl.DataFrame:
    """Rows that have a start and, where the table asks for one, a duration; others are counted.

    An event at time zero was never stamped: Kineto writes such rows when CUPTI loses the times.
    Where times count from the file's own zero, the first event may well start there.
    """
    stamp_ns = pl.col("start_ns") - clock.shift_ns
    is_stamped = stamp_ns > 0
    if clock.is_from_zero:
        has_time = pl.col("dur_ns") != 0 if "dur_ns" in rows.columns else pl.lit(value=True)
        is_stamped = stamp_ns.is_not_null() & ((stamp_ns != 0) | has_time)
    whole = rows.filter(is_stamped)
    dropped["no start"] += rows.height - whole.height
    if "dur_ns" in rows.columns:
        timed = whole.filter(pl.col("dur_ns").abs() < MAX_DUR_NS)
        dropped["no duration"] += whole.height - timed.height
        return timed
    return whole


def add(
    collected: Collected, writer: TableWriter, groups: dict[str, list[Event]], clock: Clock
) -> None:
    """Turn one batch of grouped events into rows of their tables."""
    for table, events in groups.items():
        builder = BUILDERS["other_events" if table == "windows" else table]
        rows = complete(builder(events, clock.shift_ns), clock, collected.dropped)
        if table not in ("kernels", "copies", "memory"):  # theirs are mended with the whole table
            collected.n_negative += rows.filter(pl.col("dur_ns") < 0).height
            rows = rows.with_columns(pl.col("dur_ns").clip(0))
        if table == "windows":
            ends = (rows["start_ns"] + rows["dur_ns"]).to_list()
            collected.windows += zip(rows["start_ns"].to_list(), ends, strict=True)
        elif table in DEVICE_TABLES:
            collected.kept.setdefault(table, []).append(rows)
        else:
            writer.append(table, rows)
        if table == "launches":
            collected.calls.append(rows.select("start_ns", "dur_ns", "thread", "correlation"))
        calls = communication.rows(table, events, clock.shift_ns)
        if calls is not None:
            collected.communication.append(complete(calls, clock, Counter()))
