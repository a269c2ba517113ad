"""Nsight Systems exports: `nsys export --type sqlite`, and folders of `--type parquetdir`.

A rank is one device as one process used it. Times are the report's, from the start of its session
(TARGET_INFO_SESSION_START_TIME) on. Ranges of NVTX are annotations, those of torch's emit_nvtx are
operators; steps are counted by ranges such as "step 3". Columns that a version of Nsight does not
export read as null, and tables that are missing are named.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

import tracekit.schema
from tracekit.collectors import Collector, Options, Peek, RankFile
from tracekit.collectors.chrome_trace import communication, quality
from tracekit.collectors.chrome_trace.marks import marks, step_like
from tracekit.collectors.nsys_export import nccl_ranges, rows
from tracekit.collectors.nsys_export.devices import devices
from tracekit.collectors.nsys_export.opened import STRINGS, Export, is_database, opened
from tracekit.collectors.nsys_export.places import (
    COPY,
    GRAPH,
    KERNEL,
    PID_UNIT,
    SET,
    Place,
    places,
    stated,
    world_size,
)
from tracekit.collectors.sources import redaction
from tracekit.errors import InputError
from tracekit.schema import (
    ANNOTATIONS,
    CAPTURE_QUALITY,
    COLLECTIVES,
    COPIES,
    CPU_OPS,
    KERNELS,
    LAUNCHES,
    RANKS,
    STEPS,
    SYNCS,
)
from tracekit.store import Capture, Check, SourceIdentity, TableWriter, path_text, tracekit_version

if TYPE_CHECKING:
    from collections.abc import Iterator

CALL = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")
SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
NVTX = "NVTX_EVENTS"
TELLING = (KERNEL, GRAPH, COPY, *CALL, NVTX, "META_DATA_EXPORT")
"""One of them is in any export that has something to say."""
DIGEST_BYTES = 1 << 20
MAX_DUR_NS = 1 << 60
_INDEX = ("start_ns", "dur_ns", "name", "device", "stream", "correlation")


@dataclass(slots=True)
class _Read:
    """What is kept of one rank while its tables are written."""

    device_rows: list[pl.DataFrame] = field(default_factory=list)
    calls: list[pl.DataFrame] = field(default_factory=list)
    marks: list[pl.DataFrame] = field(default_factory=list)
    communication: list[pl.DataFrame] = field(default_factory=list)
    n_events: int = 0
    n_dropped: int = 0


def sniff(path: Path) -> bool:
    """Whether it is a database, or the names of a Parquet folder, with tables of Nsight."""
    try:
        if not (is_database(path) or path.name == f"{STRINGS}.parquet"):
            return False
        export = opened(path)
    except (OSError, InputError):
        return False
    return export.has(STRINGS) and any(export.has(table) for table in TELLING)


def is_part(path: Path) -> bool:
    """Whether it is one of the other tables of a Parquet folder: read along with the names."""
    names = path.with_name(f"{STRINGS}.parquet")
    return path.suffix == ".parquet" and path != names and names.is_file() and sniff(names)


def why_not(path: Path) -> str | None:
    """What a database lacks of an export, None of other files."""
    try:
        if not is_database(path):
            return None
        opened(path)
    except InputError as error:
        return f"an SQLite database that is damaged or cut off: {error.message}"
    except OSError:
        return None
    return "an SQLite database, but no export of Nsight Systems"


def peek(path: Path) -> Peek:
    """The ranks in the file, and when its session started."""
    export = opened(path)
    found = places(export)
    rank, _ = stated(export)
    base_ns = _base_ns(export)
    several = tuple(place.rank for place in found) if len(found) > 1 else ()
    return Peek(
        rank=rank if not several else None,
        ranks=several,
        world_size=world_size(export, len(found)),
        started_ns=base_ns,
        digest=_digest(path),
    )


def convert(file: RankFile, folder: Path, options: Options) -> Capture:
    """Write the tables of one rank.

    Raises:
        InputError: the file is damaged, or holds no event of a device or host.
    """
    export = opened(file.path)
    place = _place(export, file)
    base_ns = _base_ns(export)
    shift_ns = 0 if base_ns is None else base_ns - options.epoch_ns
    redact = redaction.redacted if options.is_redacted else None
    writer = TableWriter(folder, file.rank, redact)
    read = _Read()
    try:
        _write_events(export, place, shift_ns - _moved_ns(export), writer, read)
        _check_events(file.path, read)
        checks = [*_finish(export, place, read, writer), *_missing(export, base_ns, read)]
        writer.write(
            "capture_quality",
            pl.DataFrame(
                [(c.check, c.severity, c.count, c.detail) for c in checks],
                schema=CAPTURE_QUALITY.schema,
                orient="row",
            ),
        )
        writer.close()
    except BaseException:
        writer.discard()
        raise
    stat = file.path.stat()
    facts = dict(export.facts("META_DATA_EXPORT"))
    hosts = [v for name, v in export.facts("TARGET_INFO_SYSTEM_ENV") if name == "Hostname" and v]
    return Capture(
        rank=file.rank,
        rank_source=file.rank_source,
        source=SourceIdentity(
            path=path_text(file.path), size_bytes=stat.st_size, modified_ns=stat.st_mtime_ns
        ),
        collector="nsys",
        code=code_version(),
        epoch_ns=options.epoch_ns,
        host=hosts[0] if hosts else file.host,
        backend="nccl" if writer.n_rows.get("collectives") else None,
        world_size=file.world_size,
        is_clock_base_known=base_ns is not None,
        n_events=read.n_events,
        n_bytes=stat.st_size,
        dropped={"no duration": read.n_dropped} if read.n_dropped else {},
        n_rows=writer.n_rows,
        versions={
            name: facts[key]
            for name, key in (
                ("nsys", "EXPORT_PRODUCT_VERSION"),
                ("nsys export schema", "EXPORT_SCHEMA_VERSION"),
            )
            if facts.get(key)
        },
        quality=tuple(checks),
    )


def _check_events(path: Path, read: _Read) -> None:
    if not read.n_events:
        raise InputError(
            f"{path}: no kernel, copy, call or NVTX range in it",
            hint="Record with nsys profile --trace=cuda,nvtx, and export with "
            "nsys export --type sqlite REPORT.nsys-rep",
        )


def _write_events(
    export: Export, place: Place, shift_ns: int, writer: TableWriter, read: _Read
) -> None:
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


def _finish(export: Export, place: Place, read: _Read, writer: TableWriter) -> Iterator[Check]:
    launches = [frame.drop("is_launch") for frame in read.calls]
    found = communication.collectives(read.communication, launches, ())
    writer.write("collectives", found)
    writer.write("steps", marks(pl.concat([ANNOTATIONS.empty(), *read.marks])))
    used = pl.concat([KERNELS.empty().select(_INDEX), *read.device_rows])
    writer.write("ranks", devices(export, place, set(used["device"].drop_nulls())))
    calls = pl.concat(
        [LAUNCHES.empty().select("start_ns", "thread", "correlation", is_launch=False), *read.calls]
    )
    yield from quality.device_checks(used, calls, None, 0)
    yield from quality.communication_checks(found, None)


def _missing(export: Export, base_ns: int | None, read: _Read) -> Iterator[Check]:
    """What the export does not hold that an analysis would use."""
    for tables, without, option in (
        ((KERNEL, GRAPH), "kernels", "--trace=cuda"),
        (CALL, "runtime calls", "--trace=cuda"),
        ((NVTX,), "annotations and steps", "--trace=nvtx, with ranges such as 'step 3'"),
    ):
        if not any(export.has(table) for table in tables):
            yield Check(
                check=f"no {without}",
                severity="info",
                count=1,
                detail=f"the export has no table {tables[0]}: record with nsys profile {option}",
            )
    for table, columns, without in (
        (KERNEL, ("demangledName",), "full names of kernels"),
        (KERNEL, ("registersPerThread",), "registers and shared memory"),
        (COPY, ("srcKind", "dstKind"), "kind of the host's memory"),
    ):
        if export.has(table) and not export.has(table, *columns):
            yield Check(
                check=f"columns missing: {', '.join(columns)}",
                severity="info",
                count=1,
                detail=f"{table} of this version does not tell: {without}",
            )
    n_graphs = sum(int((frame["name"] == rows.GRAPH_NAME).sum()) for frame in read.device_rows)
    if n_graphs:
        yield Check(
            check="graphs traced as a whole",
            severity="warning",
            count=n_graphs,
            detail="kernels inside CUDA graphs, communication too, were not recorded: "
            "use nsys profile --cuda-graph-trace=node",
        )
    if base_ns is None:
        yield Check(
            check="unknown clock base",
            severity="warning",
            count=1,
            detail="TARGET_INFO_SESSION_START_TIME is missing: times count from the file's zero",
        )


def _timed(found: pl.DataFrame, read: _Read) -> pl.DataFrame:
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


def _place(export: Export, file: RankFile) -> Place:
    """The place of a rank: by its number where the file holds several."""
    found = places(export)
    if len(found) == 1:
        return found[0]
    for place in found:
        if place.rank == file.rank:
            return place
    raise InputError(f"{file.path}: no rank {file.rank} among {len(found)} in the file")


def _base_ns(export: Export) -> int | None:
    """Unix time of the report's zero, null where it is not told.

    With --ts-normalize times are Unix times already.
    """
    if dict(export.facts("META_DATA_EXPORT")).get("EXPORT_PARAM_TIME_NORMALIZE") == "true":
        return 0
    found = export.all_rows("TARGET_INFO_SESSION_START_TIME", {"utcEpochNs": "number"})
    value = found["utcEpochNs"].drop_nulls().min()
    return value if isinstance(value, int) and 0 < value < 1 << 62 else None


def _moved_ns(export: Export) -> int:
    """What --ts-shift added to every time."""
    text = dict(export.facts("META_DATA_EXPORT")).get("EXPORT_PARAM_TIME_SHIFT", "0")
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 19 else 0


def _digest(path: Path) -> str:
    """Of size, head and end: exports are large, and a copy is equal in all of it."""
    digest = sha256()
    files = [path] if is_database(path) else sorted(path.parent.glob("*.parquet"))
    for file in files:
        size = file.stat().st_size
        digest.update(f"{file.name if len(files) > 1 else ''} {size}".encode())
        with file.open("rb") as stream:
            digest.update(stream.read(DIGEST_BYTES))
            stream.seek(max(0, size - DIGEST_BYTES))
            digest.update(stream.read(DIGEST_BYTES))
    return digest.hexdigest()


@cache
def code_version() -> str:
    """Identity of all code that decides what is stored."""
    digest = sha256(tracekit_version().encode())
    here = Path(__file__).resolve().parent
    package = Path(tracekit.schema.__file__).parents[1]
    folders = (here / "nsys_export", here / "chrome_trace", package / "schema")
    files = [path for folder in folders for path in folder.glob("*.py")]
    for path in sorted([*files, Path(__file__), package / "derive" / "kernel_kinds.py"]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


COLLECTOR = Collector(
    id="nsys",
    title="Nsight Systems exports (SQLite, or a folder of Parquet files)",
    produces=(
        RANKS,
        STEPS,
        KERNELS,
        COPIES,
        LAUNCHES,
        CPU_OPS,
        ANNOTATIONS,
        COLLECTIVES,
        SYNCS,
        CAPTURE_QUALITY,
    ),
    sniff=sniff,
    peek=peek,
    convert=convert,
    code=code_version,
    why_not=why_not,
    is_part=is_part,
)
