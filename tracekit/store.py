"""A run on disk: a folder of Parquet files, one per table and rank, and a manifest.

Everything is written to a temporary name and renamed, so a kill at any moment leaves a readable
folder. `captures/rank=….json` is written last for each rank: a rank that has it is complete.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import polars as pl
import pyarrow.parquet as pq

from tracekit.errors import InputError
from tracekit.facts import ClockReading, Facts
from tracekit.schema import SCHEMA_VERSION, TABLES

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS_PER_GROUP = 128 << 10
MANIFEST = "manifest.json"
_FOLDERS = ("captures", "derived", "spool")
RAW = "raw"
"""What a hook recorded and nobody converted yet; never removed as part of a run."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceIdentity:
    """One source file as it was when it was converted; another size or time means another file."""

    path: str
    size_bytes: int
    modified_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check of the quality of a rank's capture; `count` is how many events it concerns."""

    check: str
    severity: str
    count: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """One converted rank: where it came from, what was read, written, dropped and why.

    `facts` are those that a hook recorded in the job, `clocks` its host's readings of another's.
    `beside` are further files that say something of the rank, such as logs; `environment` are the
    variables that a log shows set.
    """

    rank: int
    rank_source: str
    source: SourceIdentity
    collector: str
    code: str
    epoch_ns: int
    host: str | None = None
    backend: str | None = None
    world_size: int | None = None
    is_clock_base_known: bool = True
    n_events: int = 0
    n_bytes: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    n_by_category: dict[str, int] = field(default_factory=dict)
    n_rows: dict[str, int] = field(default_factory=dict)
    window_start_ns: int | None = None
    window_end_ns: int | None = None
    flags: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    quality: tuple[Check, ...] = ()
    facts: Facts | None = None
    clocks: tuple[ClockReading, ...] = ()
    beside: tuple[SourceIdentity, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The run as a whole. Times in its tables are nanoseconds since `epoch_ns` (Unix)."""

    schema_version: int = SCHEMA_VERSION
    tracekit_version: str
    name: str
    source: str
    epoch_ns: int
    world_size: int
    captures: tuple[Capture, ...]
    missing_ranks: tuple[int, ...] = ()
    layout: dict[str, int] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    other_runs: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    is_redacted: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """A readable run: its folder and manifest; `steps` [a, b) limits what enters the averages.

    `identity` tells the sources of one run from those of another: it is made once, since every
    derived table of every rank asks for it. `answers` is where `derive` remembers what it has been
    asked about this very run; `replace` begins with none.
    """

    folder: Path
    manifest: Manifest
    steps: tuple[int, int] | None = None
    identity: str = field(init=False, compare=False, repr=False)
    answers: dict[tuple[Any, ...], Any] = field(
        init=False, compare=False, repr=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        """Digest what the captures were read from and by which code."""
        digest = hashlib.sha256(repr(self.manifest.missing_ranks).encode())
        for capture in self.manifest.captures:
            known = (capture.rank, capture.source, capture.code, capture.beside)
            digest.update(msgspec.json.encode(known))
        object.__setattr__(self, "identity", digest.hexdigest())

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that were found, in order."""
        return tuple(capture.rank for capture in self.manifest.captures)

    def capture(self, rank: int) -> Capture:
        """Facts of one rank."""
        return next(capture for capture in self.manifest.captures if capture.rank == rank)

    def scan(self, table: str, rank: int) -> pl.LazyFrame:
        """Rows of one table of one rank, with the columns of its schema; empty where it has none.

        Raises:
            InputError: the file is damaged, or is missing although it was written.
            SchemaError: it holds other columns.
        """
        path = rank_path(self.folder, table, rank)
        if not path.exists() and not self.capture(rank).n_rows.get(table):
            return TABLES[table].empty().lazy()
        try:
            rows = pl.scan_parquet(path)
            TABLES[table].check(rows)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise InputError(
                f"{path}: cannot be read: {_one_line(error)}",
                hint="Convert the trace again: tracekit convert SOURCE RUN",
            ) from error
        return rows

    def scan_all(self, table: str) -> pl.LazyFrame:
        """Rows of one table of all ranks with a leading column `rank` (Int64), rank by rank."""
        frames = [
            self.scan(table, rank).select(pl.lit(rank, dtype=pl.Int64).alias("rank"), pl.all())
            for rank in self.ranks
        ]
        return pl.concat(frames)

    def n_rows(self, table: str) -> int:
        """Rows of a table over all ranks, from the manifest."""
        return sum(capture.n_rows.get(table, 0) for capture in self.manifest.captures)


def open_run(folder: str | Path, /) -> Run:
    """Open a run folder.

    Raises:
        InputError: no manifest there, or one that is damaged or of another version.
    """
    path = Path(folder) / MANIFEST
    if not path.is_file():
        raise InputError(
            f"{folder}: not a run: no {MANIFEST} in it",
            hint="Make a run from traces: tracekit convert SOURCE RUN",
        )
    manifest = read_json(path, Manifest)
    if manifest.schema_version != SCHEMA_VERSION:
        raise InputError(
            f"{path}: schema version {manifest.schema_version}, not {SCHEMA_VERSION}",
            hint="Convert the trace again: tracekit convert SOURCE RUN",
        )
    ranks = [capture.rank for capture in manifest.captures]
    if not ranks or len(set(ranks)) < len(ranks) or min(ranks) < 0:
        raise InputError(
            f"{path}: must list at least one rank, and each once: {ranks[:8]}",
            hint="Convert the trace again: tracekit convert SOURCE RUN",
        )
    return Run(Path(folder), manifest)


@cache
def tracekit_version() -> str:
    """Version of tracekit that writes a run or a result."""
    return version("tracekit-gpu")


def path_text(path: str | Path) -> str:
    """A path as text that can be written: bytes that are no UTF-8 are shown by their number."""
    return os.fsencode(path).decode("utf-8", errors="backslashreplace")


def is_run(folder: Path) -> bool:
    """Whether a path is a run folder."""
    return (folder / MANIFEST).is_file()


def rank_path(folder: Path, table: str, rank: int) -> Path:
    """The Parquet file of one table of one rank."""
    return folder / table / f"rank={rank:06d}.parquet"


def capture_path(folder: Path, rank: int) -> Path:
    """The record of a converted rank, written after all its tables."""
    return folder / "captures" / f"rank={rank:06d}.json"


def write_json(path: Path, value: Any) -> None:
    """Write a dataclass as JSON, whole or not at all; a file that holds it is not touched."""
    path.parent.mkdir(parents=True, exist_ok=True)
    encoded = msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"
    if path.is_file() and path.read_bytes() == encoded:
        return
    temporary = path.with_name(f"{path.name}.{os.urandom(4).hex()}.tmp")  # others may write it too
    temporary.write_bytes(encoded)
    temporary.replace(path)


def read_json(path: Path, kind: type[T]) -> T:
    """Read a dataclass from JSON.

    Raises:
        InputError: the file is damaged or holds something else.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InputError(
            f"{path}: cannot be read: {_one_line(error)}",
            hint="Convert the trace again: tracekit convert SOURCE RUN",
        ) from error


def _one_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


class TableWriter:
    """Writes the tables of one rank: rows are appended, groups of rows go to disk as they fill.

    `close` renames every file into place; until then nothing of this rank can be seen.
    """

    def __init__(
        self,
        folder: Path,
        rank: int,
        change: Callable[[str, pl.DataFrame], pl.DataFrame] | None = None,
    ) -> None:
        """Start with no table open; `change` (table, rows) is applied to rows before writing.

        What an earlier conversion of this rank, killed half-way, left behind is removed.
        """
        for table in TABLES:
            _unfinished(folder, table, rank).unlink(missing_ok=True)
        self._folder = folder
        self._change = change
        self._rank = rank
        self._pending: dict[str, list[pl.DataFrame]] = {}
        self._writers: dict[str, pq.ParquetWriter] = {}
        self.n_rows: dict[str, int] = {}

    def append(self, table: str, rows: pl.DataFrame) -> None:
        """Add rows of a host table; each full group is sorted by start and written."""
        pending = self._pending.setdefault(table, [])
        pending.append(rows)
        if sum(frame.height for frame in pending) >= ROWS_PER_GROUP:
            self._flush(table)

    def write(self, table: str, rows: pl.DataFrame) -> None:
        """Write a whole table, in the order given."""
        TABLES[table].check(rows)
        self._pending[table] = []
        for start in range(0, rows.height, ROWS_PER_GROUP):
            self._write_group(table, rows.slice(start, ROWS_PER_GROUP))

    def close(self) -> None:
        """Finish every file and rename it into place; empty tables leave no file."""
        for table in list(self._pending):
            self._flush(table)
        for table, writer in self._writers.items():
            writer.close()
            unfinished = _unfinished(self._folder, table, self._rank)
            unfinished.replace(rank_path(self._folder, table, self._rank))
        for table in TABLES:
            if table not in self._writers:
                rank_path(self._folder, table, self._rank).unlink(missing_ok=True)

    def discard(self) -> None:
        """Close and remove what was written so far."""
        for table, writer in self._writers.items():
            with suppress(OSError):  # a full disk: the file goes away all the same
                writer.close()
            _unfinished(self._folder, table, self._rank).unlink(missing_ok=True)

    def _flush(self, table: str) -> None:
        pending = self._pending.pop(table, [])
        if pending:
            rows = pl.concat(pending)
            TABLES[table].check(rows)
            self._write_group(table, rows.sort("start_ns", maintain_order=True))

    def _write_group(self, table: str, rows: pl.DataFrame) -> None:
        if rows.is_empty():
            return
        if self._change is not None:
            rows = self._change(table, rows)
        arrow = rows.to_arrow(compat_level=pl.CompatLevel.oldest())
        writer = self._writers.get(table)
        if writer is None:
            path = _unfinished(self._folder, table, self._rank)
            path.parent.mkdir(parents=True, exist_ok=True)
            writer = pq.ParquetWriter(
                path, arrow.schema, compression="zstd", use_dictionary=TABLES[table].texts
            )
            self._writers[table] = writer
        writer.write_table(arrow, row_group_size=ROWS_PER_GROUP)
        self.n_rows[table] = self.n_rows.get(table, 0) + rows.height


def write_table(folder: Path, table: str, rank: int, rows: pl.DataFrame) -> None:
    """Write a small table of a rank, whole or not at all; without rows there is no file."""
    TABLES[table].check(rows)
    path = rank_path(folder, table, rank)
    if rows.is_empty():
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    rows.write_parquet(_unfinished(folder, table, rank), compression="zstd")
    _unfinished(folder, table, rank).replace(path)


def _unfinished(folder: Path, table: str, rank: int) -> Path:
    """The temporary name under which a table is written."""
    return rank_path(folder, table, rank).with_suffix(".tmp")


def is_free(folder: Path) -> bool:
    """Whether a run may be written there: nothing is, or only what a run holds, whole or not."""
    if not folder.exists():
        return True
    ours = {*TABLES, *_FOLDERS, RAW, MANIFEST}
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else [""]
    return all(name in ours or _is_unfinished_manifest(name) for name in names)


def _is_unfinished_manifest(name: str) -> bool:
    return name.startswith(f"{MANIFEST}.") and name.endswith(".tmp")


def remove_run(folder: Path) -> None:
    """Remove what a run folder holds: its tables, captures, caches and manifest, nothing else."""
    for name in (*TABLES, *_FOLDERS):
        shutil.rmtree(folder / name, ignore_errors=True)
    for path in folder.glob(f"{MANIFEST}*"):
        if path.name == MANIFEST or _is_unfinished_manifest(path.name):
            path.unlink(missing_ok=True)
