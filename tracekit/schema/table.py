"""What a table is: a name, a title and typed columns whose names end in their unit."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tracekit.errors import SchemaError


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, type, unit ("" for text and identifiers) and what it holds."""

    name: str
    dtype: pl.DataType
    unit: str
    note: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a run: one row per `title`, columns in order."""

    name: str
    title: str
    columns: tuple[Column, ...]

    @property
    def schema(self) -> pl.Schema:
        """Column names and types, in order."""
        return pl.Schema({column.name: column.dtype for column in self.columns})

    @property
    def texts(self) -> list[str]:
        """Names of the text columns.

        Parquet keeps a dictionary of these alone: numbers take less space and time without one.
        """
        return [column.name for column in self.columns if column.dtype == pl.String]

    def empty(self) -> pl.DataFrame:
        """No rows, all columns."""
        return pl.DataFrame(schema=self.schema)

    def check(self, frame: pl.DataFrame | pl.LazyFrame) -> None:
        """Compare the schema of a frame with the declared one; no data are read.

        Raises:
            SchemaError: a column is missing, unknown or of another type; all differences are named.
        """
        have = dict(frame.lazy().collect_schema())
        want = dict(self.schema)
        wrong = [f"{name}: missing" for name in want if name not in have]
        wrong += [f"{name}: not declared" for name in have if name not in want]
        wrong += [
            f"{name}: {have[name]}, not {want[name]}"
            for name in want
            if name in have and have[name] != want[name]
        ]
        if wrong:
            raise SchemaError(
                f"Table '{self.name}' does not match its schema: {'; '.join(wrong)}",
                hint="Convert the trace again: tracekit convert SOURCE RUN",
            )


I64 = pl.Int64()
F64 = pl.Float64()
TEXT = pl.String()
FLAG = pl.Boolean()

START = Column("start_ns", I64, "ns", "start, since the run's epoch")
DUR = Column("dur_ns", I64, "ns", "duration")
NAME = Column("name", TEXT, "", "name as recorded")
THREAD = Column("thread", I64, "", "operating-system thread of the call")
DEVICE = Column("device", I64, "", "device index as the process saw it")
STREAM = Column("stream", I64, "", "stream of the device")
CORRELATION = Column("correlation", I64, "", "joins a launch call and what it started")
EXTERNAL_ID = Column("external_id", I64, "", "joins a host operator and the calls inside it")
