"""Events of one rank from an export into its tables, and what is kept of them meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from tracekit.collectors.chrome_trace import communication, quality
from tracekit.collectors.chrome_trace.marks import marks, step_like
from tracekit.collectors.nsys_export import nccl_ranges, rows
from tracekit.collectors.nsys_export.devices import devices
from tracekit.collectors.nsys_export.gpu_metrics import gpu_metrics
from tracekit.collectors.nsys_export.places import (
    CALL,
    COPY,
    GRAPH,
    KERNEL,
    NVTX,
    PID_UNIT,
    SET,
    SYNC,
)
from tracekit.schema import ANNOTATIONS, KERNELS, LAUNCHES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.collectors.nsys_export.opened import Export
    from tracekit.collectors.nsys_export.places import Place
    from tracekit.store import Check, TableWriter

MAX_DUR_NS = 1 << 60
_INDEX = ("start_ns", "dur_ns", "name", "device", "stream", "correlation")


@dataclass(slots=True)
class Read:
    """What is kept of one rank while its tables are written."""

    device_rows: list[pl.DataFrame] = field(default_factory=list)
    calls: list[pl.DataFrame] = field(default_factory=list)
    marks: list[pl.DataFrame] = field(default_factory=list)
    communication: list[pl.DataFrame] = field(default_factory=list)
    n_events: int = 0
    n_dropped: int = 0


def write_events(
    export: Export, place: Place, shift_ns: int, writer: TableWriter, read: Read
) -> None:
    """Write the events of a rank, some at a time; `shift_ns` puts the report's times on the epoch.

    Raises:
        InputError: a table is damaged.
    """
    strings = export.strings()
    for kernel_table, wanted, build in (
        (KERNEL, "kernel", rows.kernels),
        (GRAPH, "graph", rows.graphs),
        (COPY, "copy", rows.copies),
        (SET, "set", rows.sets),
        (SYNC, "sync", rows.syncs),
    ):
        table = {"kernel": "kernels", "graph": "kernels", "sync": "syncs"}.get(wanted, "copies")
        for found in export.rows(kernel_table, rows.WANTED[wanted], order="start"):
            kept = _timed(build(_of_place(found, place), strings, shift_ns), read)
            if wanted != "sync":
                read.device_rows.append(kept.select(_INDEX))
            writer.append(table, kept)
            if wanted == "kernel":
                read.communication.append(nccl_ranges.kernels(kept))
    ours = pl.concat([KERNELS.empty().select(_INDEX), *read.device_rows])["correlation"].unique()
    others = _started_elsewhere(export, place, ours)
    for call_table in CALL:
        for found in export.rows(call_table, rows.WANTED["call"], order="start"):
            chosen = _of_process(found, place).filter(
                ~pl.col("correlationId").is_in(others.implode()).fill_null(value=False)
            )
            kept = _timed(rows.calls(chosen, strings, shift_ns), read)
            read.calls.append(
                kept.select(
                    "start_ns",
                    "thread",
                    "correlation",
                    pl.col("role").is_in(["launch", "graph-launch", "copy"]).alias("is_launch"),
                )
            )
            writer.append("launches", kept)
    domains = _domains(export, strings, place)
    for found in export.rows(NVTX, rows.WANTED["range"], order="start"):
        spans = rows.ranges(_of_process(found, place), strings, domains)
        kept = _timed(rows.spans(spans, shift_ns), read)
        read.marks.append(step_like(kept))
        read.communication.append(nccl_ranges.ranges(spans, shift_ns))
        writer.append("annotations", kept)
        writer.append("cpu_ops", _timed(rows.operators(spans, shift_ns), read))


def finish(
    export: Export, place: Place, shift_ns: int, read: Read, writer: TableWriter
) -> Iterator[Check]:
    """Write what rests on all events of a rank, and say what is doubtful in them."""
    launches = [frame.drop("is_launch") for frame in read.calls]
    found = communication.collectives(read.communication, launches, ())
    writer.write("collectives", found)
    writer.write("steps", marks(pl.concat([ANNOTATIONS.empty(), *read.marks])))
    used = pl.concat([KERNELS.empty().select(_INDEX), *read.device_rows])
    numbers = set(used["device"].drop_nulls())
    writer.write("ranks", devices(export, place, numbers))
    writer.write("telemetry", gpu_metrics(export, place, numbers, shift_ns))
    calls = pl.concat(
        [LAUNCHES.empty().select("start_ns", "thread", "correlation", is_launch=False), *read.calls]
    )
    yield from quality.device_checks(used, calls, None, 0)
    yield from quality.communication_checks(found, None)


def _timed(found: pl.DataFrame, read: Read) -> pl.DataFrame:
    """Rows with a start and a duration that can be; others are counted."""
    is_sound = pl.col("start_ns").is_not_null() & pl.col("dur_ns").is_between(0, MAX_DUR_NS)
    kept = found.filter(is_sound)
    read.n_events += kept.height
    read.n_dropped += found.height - kept.height
    return kept


def _of_place(found: pl.DataFrame, place: Place) -> pl.DataFrame:
    """Rows of a device and its process; a row that does not say its process belongs to each."""
    if place.device is not None:
        found = found.filter(pl.col("deviceId").is_null() | (pl.col("deviceId") == place.device))
    if place.process is not None:
        found = found.filter(pl.col("globalPid").is_null() | (pl.col("globalPid") == place.process))
    return found


def _of_process(found: pl.DataFrame, place: Place) -> pl.DataFrame:
    """Rows of the threads of a process."""
    if place.process is None:
        return found
    process = pl.col("globalTid") // PID_UNIT * PID_UNIT
    return found.filter(pl.col("globalTid").is_null() | (process == place.process))


def _started_elsewhere(export: Export, place: Place, ours: pl.Series) -> pl.Series:
    """Correlations of work that the same process started on other devices."""
    wanted = dict.fromkeys(("deviceId", "globalPid", "correlationId"), "number")
    found = [pl.Series("correlationId", [], dtype=pl.Int64)]
    for table in (KERNEL, GRAPH, COPY, SET):
        for some in export.rows(table, wanted):
            others = (
                some.filter(pl.col("deviceId") != place.device)
                if place.device is not None
                else some.clear()
            )
            if place.process is not None:
                others = others.filter(pl.col("globalPid") == place.process)
            found.append(others["correlationId"].drop_nulls())
    everything = pl.concat(found).unique()
    return everything.filter(~everything.is_in(ours.implode()))


def _domains(export: Export, strings: pl.DataFrame, place: Place) -> dict[int, str]:
    """Names of NVTX domains but the default one."""
    found: dict[int, str] = {}
    wanted = rows.WANTED["range"]
    for some in export.rows(NVTX, wanted):
        made = _of_process(some.filter(pl.col("eventType") == rows.DOMAIN_CREATED), place)
        names = dict(strings.filter(pl.col("id").is_in(made["textId"].implode())).iter_rows())
        for row in made.iter_rows(named=True):
            name = row["text"] or names.get(row["textId"])
            if row["domainId"] and name:
                found[row["domainId"]] = name
    return found
