"""PyTorch profiler (Kineto) traces: Chrome-trace JSON, plain or gzipped, of any age and device."""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

import tracekit.schema
from tracekit.collectors import Collector, Options, Peek, RankFile
from tracekit.collectors.chrome_trace import communication, durations, quality
from tracekit.collectors.chrome_trace.columns import frame
from tracekit.collectors.chrome_trace.events import Reading, batches
from tracekit.collectors.chrome_trace.heading import Heading, read_heading
from tracekit.collectors.chrome_trace.marks import marks
from tracekit.collectors.chrome_trace.stream import head
from tracekit.collectors.chrome_trace.tables import (
    CALLS,
    Clock,
    Collected,
    add,
    collected,
    grouped,
)
from tracekit.collectors.sources import redaction
from tracekit.errors import InputError
from tracekit.schema import (
    ANNOTATIONS,
    BANDWIDTH_BASELINES,
    CAPTURE_QUALITY,
    COMMUNICATORS,
    FLIGHT_GROUPS,
    FLIGHT_RECORDS,
    LAUNCHES,
    NCCL_MESSAGES,
    OPS,
    RANKS,
    TABLES,
    TRANSPORTS,
)
from tracekit.store import Capture, Check, SourceIdentity, TableWriter, path_text, tracekit_version

if TYPE_CHECKING:
    from tracekit.collectors.chrome_trace.spool import Spool

SNIFF_BYTES = 64 << 10
INDEX = ("start_ns", "dur_ns", "name", "device", "stream", "correlation")
"""Columns of device rows that are kept in memory, to sort, mend and check them."""
OF_OTHERS = (
    OPS,
    FLIGHT_RECORDS,
    FLIGHT_GROUPS,
    COMMUNICATORS,
    TRANSPORTS,
    NCCL_MESSAGES,
    BANDWIDTH_BASELINES,
)
"""Tables that no trace of a profiler fills."""
_NO_CALLS = LAUNCHES.empty().select(CALLS)


def sniff(path: Path) -> bool:
    """Whether the file opens like a trace: an object with known keys, or a list of whole events."""
    try:
        first = head(path, SNIFF_BYTES).lstrip(b"\xef\xbb\xbf \t\r\n")
    except OSError:
        return False
    if first.startswith(b"{"):
        keys = rb'"(?:traceEvents|distributedInfo|deviceProperties|baseTimeNanoseconds)"\s*:'
        return re.search(keys, first) is not None
    is_list = first.startswith(b"[") and re.search(rb'"ph"\s*:\s*"X"', first) is not None
    return is_list and b'"cat"' in first


def peek(path: Path) -> Peek:
    """Rank and run of a file, from what stands outside its events."""
    heading = read_heading(path)
    started_ns = None if heading.first_ns is None else heading.base_ns + heading.first_ns
    return Peek(
        rank=heading.rank,
        world_size=heading.world_size,
        started_ns=started_ns if heading.is_base_known else None,
        run_key=heading.job or heading.group_trace_id,
        trace_id=heading.trace_id,
        digest=heading.digest,
    )


def convert(file: RankFile, folder: Path, options: Options) -> Capture:
    """Write the tables of one rank.

    Raises:
        InputError: the file holds no event of a profiler.
    """
    heading = read_heading(file.path)
    clock = Clock(
        shift_ns=heading.base_ns - (options.epoch_ns if heading.is_base_known else 0),
        is_from_zero=not heading.is_base_known,
    )
    reading = Reading()
    read = collected(folder, file.rank)
    redact = redaction.redacted if options.is_redacted else None
    writer = TableWriter(folder, file.rank, redact)
    try:
        for events in batches(file.path, reading):
            add(read, writer, grouped(events, read.n_by_category), clock)
        _check_events(file.path, read, reading)
        checks = [
            *quality.reading_checks(reading, heading, read.dropped),
            *_finish(read, writer, heading),
        ]
        writer.write("capture_quality", _rows(checks))
        writer.close()
    except BaseException:
        writer.discard()
        raise
    finally:
        read.discard()
    stat = file.path.stat()
    dropped = {why: n for why, n in read.dropped.items() if n}
    window = _window(read)
    return Capture(
        rank=file.rank,
        rank_source=file.rank_source,
        source=SourceIdentity(
            path=path_text(file.path), size_bytes=stat.st_size, modified_ns=stat.st_mtime_ns
        ),
        collector="kineto",
        code=code_version(),
        epoch_ns=options.epoch_ns,
        host=heading.host or file.host,
        backend=heading.backend,
        world_size=heading.world_size or file.world_size,
        is_clock_base_known=heading.is_base_known,
        n_events=reading.n_events,
        n_bytes=reading.n_bytes,
        dropped=dropped | ({"damaged": reading.n_lost} if reading.n_lost else {}),
        n_by_category=dict(read.n_by_category.most_common()),
        n_rows=writer.n_rows,
        window_start_ns=window[0] if window else None,
        window_end_ns=window[1] if window else None,
        flags=heading.flags,
        versions=heading.versions,
        quality=tuple(checks),
    )


def _finish(read: Collected, writer: TableWriter, heading: Heading) -> list[Check]:
    """Sort, mend and write what waited for the whole file; returns the checks that need it."""
    n_clipped = 0
    window = _window(read)
    index: dict[str, pl.DataFrame] = {}
    for table, spool in read.spools.items():
        rows = spool.narrow(list(INDEX)).sort("start_ns", maintain_order=True)
        index[table], n = durations.clipped(rows, window[1] if window else None)
        n_clipped += n
        _write_sorted(writer, spool, index[table])
    found = communication.collectives(read.communication, read.calls, heading.groups)
    found = _with_clipped(found, index["kernels"]) if n_clipped else found
    writer.write("collectives", found)
    writer.write("steps", marks(pl.concat([ANNOTATIONS.empty(), *read.marks])))
    writer.write("ranks", _devices(heading, index))
    calls = pl.concat([_NO_CALLS, *read.calls])
    return [
        *quality.device_checks(
            pl.concat([index["kernels"], index["copies"]]).drop("row"),
            calls,
            window,
            n_clipped + read.n_negative,
        ),
        *quality.communication_checks(found, heading.world_size),
    ]


def _write_sorted(writer: TableWriter, spool: Spool, index: pl.DataFrame) -> None:
    """Write the rows of a spool in the order of its index, with the durations mended there."""
    done = 0
    for piece in spool.pieces(index["row"]):
        writer.write(
            spool.table.name,
            piece.with_columns(index["dur_ns"].slice(done, piece.height)),
        )
        done += piece.height


def _window(read: Collected) -> tuple[int, int] | None:
    """The capture's own span, over all that the file holds."""
    if not read.windows:
        return None
    return min(start for start, _ in read.windows), max(end for _, end in read.windows)


def _rows(checks: list[Check]) -> pl.DataFrame:
    rows = [(check.check, check.severity, check.count, check.detail) for check in checks]
    return pl.DataFrame(rows, schema=CAPTURE_QUALITY.schema, orient="row")


def _with_clipped(collectives: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    """Take the mended duration of each communication kernel."""
    key = ["start_ns", "device", "stream", "correlation"]
    mended = kernels.select(*key, mended_ns="dur_ns").unique(key, keep="first")
    return (
        collectives.join(mended, on=key, how="left", nulls_equal=True, maintain_order="left")
        .with_columns(dur_ns=pl.coalesce("mended_ns", "dur_ns"))
        .drop("mended_ns")
    )


def _devices(heading: Heading, index: dict[str, pl.DataFrame]) -> pl.DataFrame:
    """Devices of the heading, and those that ran something without being listed there."""
    used = set(index["kernels"]["device"].unique()) | set(index["copies"]["device"].unique())
    listed = {facts.device for facts in heading.devices}
    rows = [(f.device, f.model, f.sm_count, f.memory_bytes) for f in heading.devices]
    rows += [(d, None, None, None) for d in sorted(used - listed - {None})]
    columns = list(zip(*rows, strict=True)) or [()] * 4
    return frame(
        RANKS,
        {
            "start_ns": rows,
            "device": columns[0],
            "gpu_model": columns[1],
            "sm_count": columns[2],
            "memory_bytes": columns[3],
            "is_used": [device in used for device in columns[0]],
        },
    )


def _check_events(path: Path, read: Collected, reading: Reading) -> None:
    if not read.n_by_category:
        raise InputError(
            f"{path}: {_why_empty(reading)}",
            hint="Record with torch.profiler.profile and export_chrome_trace",
        )


def _why_empty(reading: Reading) -> str:
    if reading.n_lost:
        return f"all of its {reading.n_lost + reading.n_events} events are damaged"
    if reading.n_events == 0 and reading.is_truncated:
        return reading.cut.why or "cut, or damaged, before its first event ends"
    if reading.n_events == 0:
        return "the list of events is empty"
    return (
        f"{reading.n_events} events, none of a profiler (no complete event with a category): "
        "a Chrome trace of another tool"
    )


@cache
def code_version() -> str:
    """Identity of all code that decides what is stored: what other code wrote is made again."""
    digest = sha256(tracekit_version().encode())
    here = Path(__file__).resolve().parent
    package = Path(tracekit.schema.__file__).parents[1]
    sources = [here, here / "chrome_trace", here / "sources", package / "schema"]
    files = [path for folder in sources for path in folder.glob("*.py")]
    for path in sorted([*files, package / "derive" / "kernel_kinds.py"]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


COLLECTOR = Collector(
    id="kineto",
    title="PyTorch profiler (Kineto) traces, .json and .json.gz",
    produces=tuple(table for table in TABLES.values() if table not in OF_OTHERS),
    sniff=sniff,
    peek=peek,
    convert=convert,
    code=code_version,
)
