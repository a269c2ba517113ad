"""An export of Nsight Systems as named tables with whole numbers and texts: SQLite or Parquet.

Files come from strangers: a database is opened read-only, nothing in it is called, views and
virtual tables are not looked at, and every value is cast to the type asked for. Which columns are
there differs by version (EXPORT_SCHEMA_VERSION): what is not there reads as null.

Format: https://docs.nvidia.com/nsight-systems/UserGuide (SQLite schema reference).
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tracekit.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAGIC = b"SQLite format 3\x00"
STRINGS = "StringIds"
"""The table that every export has; a folder of Parquet files is known by its file."""
ROWS_AT_ONCE = 1 << 16
MAX_TABLES = 10_000
MAX_STRINGS = 20_000_000
MAX_TEXT_BYTES = 1 << 26
_KINDS: Mapping[str, type[pl.DataType]] = {"text": pl.String, "real": pl.Float64}
_NUMBER = "INTEGER"


@dataclass(frozen=True, slots=True)
class Export:
    """One export: where it is, and the columns of each of its tables by name."""

    path: Path
    columns: dict[str, tuple[str, ...]]

    def has(self, table: str, *columns: str) -> bool:
        """Whether a table is there, with these columns."""
        return table in self.columns and set(columns) <= set(self.columns[table])

    def rows(
        self, table: str, wanted: Mapping[str, str], *, order: str | None = None
    ) -> Iterator[pl.DataFrame]:
        """Rows of a table, some at a time.

        Args:
            table: its name; nothing comes where it is missing.
            wanted: column → "number", "text" or "real"; columns that are missing are null.
            order: column to sort by, where it is there.

        Raises:
            InputError: the file is damaged.
        """
        have = self.columns.get(table)
        if have is None:
            return
        by = order if order in have else None
        try:
            if is_database(self.path):
                yield from _of_database(self.path, table, have, wanted, by)
            else:
                yield from _of_folder(self.path.parent, table, have, wanted, by)
        except (sqlite3.Error, pl.exceptions.PolarsError, pa.ArrowException) as error:
            raise InputError(
                f"{self.path}: table {table} cannot be read: {error}",
                hint="Export the report again: nsys export --type sqlite REPORT.nsys-rep",
            ) from error

    def all_rows(self, table: str, wanted: Mapping[str, str]) -> pl.DataFrame:
        """All rows of a small table, in one frame."""
        schema = {name: _KINDS.get(kind, pl.Int64)() for name, kind in wanted.items()}
        return pl.concat([pl.DataFrame(schema=schema), *self.rows(table, wanted)])

    def strings(self) -> pl.DataFrame:
        """The texts that other tables name by number: id, value."""
        frames = []
        n_rows = 0
        for rows in self.rows(STRINGS, {"id": "number", "value": "text"}):
            frames.append(rows)
            n_rows += rows.height
            if n_rows > MAX_STRINGS:
                raise InputError(f"{self.path}: more than {MAX_STRINGS:,} names in {STRINGS}")
        empty = pl.DataFrame(schema={"id": pl.Int64, "value": pl.String})
        return pl.concat([empty, *frames]).drop_nulls("id").unique("id", keep="first")

    def facts(self, table: str) -> list[tuple[str, str]]:
        """Rows of a table of names and values (META_DATA_…, TARGET_INFO_SYSTEM_ENV)."""
        found = self.all_rows(table, {"name": "text", "value": "text"}).drop_nulls("name")
        return [(name, value or "") for name, value in found.iter_rows()]


def is_database(path: Path) -> bool:
    """Whether a file is an SQLite database, by its first bytes."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def opened(path: Path) -> Export:
    """Tables and columns of an export.

    Raises:
        InputError: no database, or no Parquet files.
    """
    try:
        found = _database_tables(path) if is_database(path) else _folder_tables(path.parent)
    except (sqlite3.Error, pa.ArrowException) as error:
        raise InputError(f"{path}: cannot be opened: {error}") from error
    return Export(path, found)


def _connected(path: Path) -> sqlite3.Connection:
    """A connection that cannot write, takes no lock, and reads no journal beside the file."""
    uri = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"
    connection = sqlite3.connect(uri, uri=True)
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_TEXT_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    for pragma in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _database_tables(path: Path) -> dict[str, tuple[str, ...]]:
    found = {}
    with closing(_connected(path)) as connection:
        listed = connection.execute(
            # a virtual table has no page of its own
            "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0 LIMIT ?",
            (MAX_TABLES,),
        )
        for (name,) in listed.fetchall():
            columns = connection.execute(f"PRAGMA table_info({_quoted(name)})").fetchall()
            found[name] = tuple(column[1] for column in columns)
    return found


def _of_database(
    path: Path, table: str, have: tuple[str, ...], wanted: Mapping[str, str], order: str | None
) -> Iterator[pl.DataFrame]:
    terms = [
        f"CAST({_quoted(name)} AS {_NUMBER if kind == 'number' else kind})"
        if name in have
        else "NULL"
        for name, kind in wanted.items()
    ]
    schema = {name: _KINDS.get(kind, pl.Int64)() for name, kind in wanted.items()}
    query = f"SELECT {', '.join(terms)} FROM {_quoted(table)}"  # noqa: S608 - names are quoted
    if order is not None:
        query += f" ORDER BY CAST({_quoted(order)} AS INTEGER)"
    with closing(_connected(path)) as connection:
        cursor = connection.execute(query)
        while rows := cursor.fetchmany(ROWS_AT_ONCE):
            yield pl.DataFrame(rows, schema=schema, orient="row")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _folder_tables(folder: Path) -> dict[str, tuple[str, ...]]:
    files = sorted(folder.glob("*.parquet"))[:MAX_TABLES]
    return {file.stem: tuple(pq.read_schema(file).names) for file in files}


def _of_folder(
    folder: Path, table: str, have: tuple[str, ...], wanted: Mapping[str, str], order: str | None
) -> Iterator[pl.DataFrame]:
    columns = [
        (pl.col(name) if name in have else pl.lit(None))
        .cast(_KINDS.get(kind, pl.Int64)(), strict=False)
        .alias(name)
        for name, kind in wanted.items()
    ]
    rows = pl.scan_parquet(folder / f"{table}.parquet", glob=False).select(columns)
    if order is not None and order in wanted:
        rows = rows.sort(order)
    yield from rows.collect().iter_slices(ROWS_AT_ONCE)
