"""Tables of one rank while its file is read: device tables spooled, host tables written in groups.

Device tables are sorted as a whole and wait on disk until all rows are known; host tables are
sorted inside each row group and stay in file order between them. Memory holds a chunk, and a few
narrow columns of launches and device events.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import filterfalse
from typing import TYPE_CHECKING

import polars as pl

from tracekit.collectors.chrome_trace import communication
from tracekit.collectors.chrome_trace.columns import BUILDERS, CATEGORIES
from tracekit.collectors.chrome_trace.marks import step_like
from tracekit.collectors.chrome_trace.spool import Spool
from tracekit.schema import TABLES
from tracekit.store import rank_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tracekit.collectors.chrome_trace.events import Event
    from tracekit.store import TableWriter

DEVICE_TABLES = ("kernels", "copies")
"""Sorted as a whole when the file has been read."""
CALLS = (
    "start_ns",
    "thread",
    "correlation",
    pl.col("role").is_in(["launch", "graph-launch", "copy"]).alias("is_launch"),
)
"""Columns of runtime calls that are kept in memory, to link device events."""
MAX_DUR_NS = 1 << 60
"""36 years: what is longer is no duration."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Added to a file's times to get those of the run; whether they count from the file's zero."""

    shift_ns: int
    is_from_zero: bool = False


@dataclass(slots=True)
class Collected:
    """What has been read of one rank: spools, rows for joins, counts, the capture window."""

    spools: dict[str, Spool]
    marks: list[pl.DataFrame] = field(default_factory=list)
    calls: list[pl.DataFrame] = field(default_factory=list)
    communication: list[pl.DataFrame] = field(default_factory=list)
    n_by_category: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    windows: list[tuple[int, int]] = field(default_factory=list)
    n_negative: int = 0

    def discard(self) -> None:
        """Remove the spools."""
        for spool in self.spools.values():
            spool.discard()


def collected(folder: Path, rank: int) -> Collected:
    """Nothing read yet; device rows will wait beside the tables of the rank."""
    spools = {
        table: Spool(TABLES[table], rank_path(folder, table, rank).with_suffix(".spool"))
        for table in DEVICE_TABLES
    }
    return Collected(spools)


def grouped(events: Sequence[Event], counts: Counter[str]) -> dict[str, list[Event]]:
    """Events by the table that holds them; metadata, flows, counters and marks belong to none."""
    by_category: defaultdict[str, list[Event]] = defaultdict(list)
    instants: list[Event] = []
    for event in events:
        if event.ph == "X":
            by_category[event.cat].append(event)
        elif event.ph == "i":
            instants.append(event)
    groups: defaultdict[str, list[Event]] = defaultdict(list)
    for category, found in by_category.items():
        counts[category] += len(found)
        for table, chosen in _by_table(category, found):
            groups[table] += chosen
    groups["memory"] = [event for event in instants if event.name == "[memory]"]
    return {table: chosen for table, chosen in groups.items() if chosen}


def _by_table(category: str, events: list[Event]) -> Iterator[tuple[str, list[Event]]]:
    """Events of one category, by table: some are told by their names."""
    table = CATEGORIES.get(category, "windows" if category == "Trace" else "other_events")
    if table == "cpu_ops":
        other, is_other = "annotations", _is_mark
    elif category == "mtia_ccp_events":
        other, is_other = "copies", _is_dma
    else:
        yield table, events
        return
    others = list(filter(is_other, events))
    yield other, others
    yield table, list(filterfalse(is_other, events)) if others else events


def _is_mark(event: Event) -> bool:
    return event.name.startswith("ProfilerStep#")


def _is_dma(event: Event) -> bool:
    return event.name == "dma_request"


def complete(rows: pl.DataFrame, clock: Clock, dropped: Counter[str]) -> pl.DataFrame:
    """Rows that have a start and, where the table asks for one, a duration; others are counted.

    An event at time zero was never stamped: Kineto writes such rows when CUPTI loses the times.
    Where times count from the file's own zero, the first event may well start there.
    """
    if _is_complete(rows, clock):
        return rows
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


def _is_complete(rows: pl.DataFrame, clock: Clock) -> bool:
    """Whether all rows surely have what `complete` asks for: mostly so, and cheap to see."""
    start_ns = _span(rows["start_ns"])
    if start_ns is None or start_ns[0] <= clock.shift_ns:
        return False
    if "dur_ns" not in rows.columns:
        return True
    dur_ns = _span(rows["dur_ns"])
    return dur_ns is not None and dur_ns[0] > -MAX_DUR_NS and dur_ns[1] < MAX_DUR_NS


def _span(column: pl.Series) -> tuple[int, int] | None:
    """Least and largest number of a column; None where one is missing."""
    least, most = column.min(), column.max()
    if column.null_count() or not isinstance(least, int) or not isinstance(most, int):
        return None
    return least, most


def add(read: Collected, writer: TableWriter, groups: dict[str, list[Event]], clock: Clock) -> None:
    """Turn one batch of grouped events into rows of their tables."""
    for table, events in groups.items():
        builder = BUILDERS["other_events" if table == "windows" else table]
        rows = complete(builder(events, clock.shift_ns), clock, read.dropped)
        if table not in (*DEVICE_TABLES, "memory"):  # theirs are mended with the whole table
            n_negative = int((rows["dur_ns"] < 0).sum())
            if n_negative:
                read.n_negative += n_negative
                rows = rows.with_columns(pl.col("dur_ns").clip(0))
        if table == "windows":
            ends = (rows["start_ns"] + rows["dur_ns"]).to_list()
            read.windows += zip(rows["start_ns"].to_list(), ends, strict=True)
        elif table in DEVICE_TABLES:
            read.spools[table].append(rows)
        else:
            writer.append(table, rows)
        if table == "annotations":
            read.marks.append(step_like(rows))
        elif table == "launches":
            read.calls.append(rows.select(CALLS))
        calls = communication.rows(table, events, clock.shift_ns)
        if calls is not None:
            read.communication.append(complete(calls, clock, Counter()))
