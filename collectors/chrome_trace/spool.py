"""Rows of a table kept on disk until all are known, then read back in any order, piece by piece.

Device tables must be sorted as a whole, and a trace holds as many device events as it is long. Only
a few narrow columns of them are kept in memory; the rest waits in a Parquet file of row groups, of
which a piece of the sorted order touches few, since a trace is nearly in order.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import polars as pl
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tracekit.schema import Table

ROWS_PER_GROUP = 32 << 10
N_GROUPS_KEPT = 3
"""Read groups that the next piece may need again."""


class Spool:
    """Rows of one table on disk, in the order in which they came."""

    def __init__(self, table: Table, path: Path) -> None:
        """Nothing is written before the first group is full; what a killed run left is removed."""
        path.unlink(missing_ok=True)
        self.table = table
        self._path = path
        self._pending: list[pl.DataFrame] = []
        self._writer: pq.ParquetWriter | None = None
        self._group_starts = [0]

    @property
    def n_rows(self) -> int:
        """Rows so far."""
        return self._group_starts[-1] + sum(frame.height for frame in self._pending)

    def append(self, rows: pl.DataFrame) -> None:
        """Add rows behind those that are there."""
        self._pending.append(rows)
        if sum(frame.height for frame in self._pending) >= ROWS_PER_GROUP:
            self._flush()

    def narrow(self, columns: list[str]) -> pl.DataFrame:
        """Some columns of all rows, in the order in which they came, with their number as `row`.

        Text comes back as categories.
        """
        self._finish()
        if self._writer is None:
            nothing = self.table.empty().select(columns).with_row_index("row")
            return nothing.with_columns(pl.col(pl.String).cast(pl.Categorical))
        names = [name for name in columns if name in self.table.texts]
        # pq.read_table would import pyarrow.dataset first, 0.2 s of CPU in each process.
        with pq.ParquetFile(self._path, read_dictionary=names) as file:
            frame = pl.from_arrow(file.read(columns=columns))
        assert isinstance(frame, pl.DataFrame)
        return frame.with_row_index("row")

    def pieces(self, rows: pl.Series) -> Iterator[pl.DataFrame]:
        """The rows of these numbers, in this order, as frames of at most a group's size."""
        self._finish()
        if self._writer is None:
            return
        with pq.ParquetFile(self._path) as file:

            @lru_cache(N_GROUPS_KEPT)
            def group(number: int) -> pl.DataFrame:
                whole = pl.from_arrow(file.read_row_group(number))
                assert isinstance(whole, pl.DataFrame)
                return whole

            for start in range(0, rows.len(), ROWS_PER_GROUP):
                yield self._gathered(group, rows.slice(start, ROWS_PER_GROUP))

    def discard(self) -> None:
        """Remove the file."""
        if self._writer is not None:
            self._writer.close()
        self._path.unlink(missing_ok=True)

    def _gathered(self, group: Callable[[int], pl.DataFrame], rows: pl.Series) -> pl.DataFrame:
        """Rows by number, from the groups that hold them."""
        firsts = pl.Series(self._group_starts[:-1], dtype=pl.UInt32)
        holds = firsts.search_sorted(rows, side="right") - 1
        wanted = pl.DataFrame({"row": rows, "group": holds}).with_row_index("place")
        parts = []
        for (number,), part in wanted.partition_by("group", as_dict=True).items():
            inside = group(int(number))[part["row"] - self._group_starts[int(number)]]
            parts.append(inside.with_columns(part["place"]))
        return pl.concat(parts).sort("place").drop("place")

    def _flush(self) -> None:
        if not self._pending:
            return
        rows = pl.concat(self._pending)
        self._pending = []
        if rows.is_empty():  # a row group holds at least one row
            return
        arrow = rows.to_arrow(compat_level=pl.CompatLevel.oldest())
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(
                self._path, arrow.schema, compression="lz4", use_dictionary=self.table.texts
            )
        self._writer.write_table(arrow, row_group_size=rows.height)
        self._group_starts.append(self._group_starts[-1] + rows.height)

    def _finish(self) -> None:
        self._flush()
        if self._writer is not None and self._writer.is_open:
            self._writer.close()
