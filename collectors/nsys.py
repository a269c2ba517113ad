"""Nsight Systems exports: `nsys export --type sqlite`, and folders of `--type parquetdir`.

A rank is one device as one process used it. Times are the report's, from the start of its session
(TARGET_INFO_SESSION_START_TIME) on. Ranges of NVTX are annotations, those of torch's emit_nvtx are
operators; steps are counted by ranges such as "step 3". Columns that a version of Nsight does not
export read as null, and tables that are missing are named.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path

import polars as pl

import tracekit.schema
from tracekit.collectors import Collector, Options, Peek, RankFile
from tracekit.collectors.nsys_export.missing import missing
from tracekit.collectors.nsys_export.opened import STRINGS, Export, is_database, opened
from tracekit.collectors.nsys_export.places import (
    CALL,
    COPY,
    GRAPH,
    KERNEL,
    NVTX,
    Place,
    places,
    stated,
    world_size,
)
from tracekit.collectors.nsys_export.session_clock import base_ns, moved_ns
from tracekit.collectors.nsys_export.writing import Read, finish, write_events
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
    TELEMETRY,
)
from tracekit.store import Capture, SourceIdentity, TableWriter, path_text, tracekit_version

TELLING = (KERNEL, GRAPH, COPY, *CALL, NVTX, "META_DATA_EXPORT")
"""One of them is in any export that has something to say."""
DIGEST_BYTES = 1 << 20


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
    began_ns = base_ns(export)
    several = tuple(place.rank for place in found) if len(found) > 1 else ()
    return Peek(
        rank=rank if not several else None,
        ranks=several,
        world_size=world_size(export, len(found)),
        started_ns=began_ns,
        digest=_digest(path),
    )


def convert(file: RankFile, folder: Path, options: Options) -> Capture:
    """Write the tables of one rank.

    Raises:
        InputError: the file is damaged, or holds no event of a device or host.
    """
    export = opened(file.path)
    place = _place(export, file)
    began_ns = base_ns(export)
    shift_ns = (0 if began_ns is None else began_ns - options.epoch_ns) - moved_ns(export)
    redact = redaction.redacted if options.is_redacted else None
    writer = TableWriter(folder, file.rank, redact)
    read = Read()
    try:
        write_events(export, place, shift_ns, writer, read)
        _check_events(file.path, read)
        checks = [*finish(export, place, shift_ns, read, writer), *missing(export, began_ns, read)]
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
        is_clock_base_known=began_ns is not None,
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


def _check_events(path: Path, read: Read) -> None:
    if not read.n_events:
        raise InputError(
            f"{path}: no kernel, copy, call or NVTX range in it",
            hint="Record with nsys profile --trace=cuda,nvtx, and export with "
            "nsys export --type sqlite REPORT.nsys-rep",
        )


def _place(export: Export, file: RankFile) -> Place:
    """The place of a rank: by its number where the file holds several."""
    found = places(export)
    if len(found) == 1:
        return found[0]
    for place in found:
        if place.rank == file.rank:
            return place
    raise InputError(f"{file.path}: no rank {file.rank} among {len(found)} in the file")


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
        TELEMETRY,
        CAPTURE_QUALITY,
    ),
    sniff=sniff,
    peek=peek,
    convert=convert,
    code=code_version,
    why_not=why_not,
    is_part=is_part,
)
