"""Names that should not leave a company become stable aliases: hosts, users, paths, modules.

An alias is a short hash, so that the same name has the same alias in every run and table, and two
runs can still be compared. Kernel and operator names of libraries stay: they are public.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from tracekit.store import Capture

_PATH = re.compile(r"(?:[A-Za-z]:)?(?:[/\\][\w.@+~-][\w.@+~ -]*)+|[\w./\\-]+\.py\b")
_MODULE = re.compile(r"(?<=nn\.Module: )[\w.]+")
_SCOPED = re.compile(r"(?<=\()[\w.]+(?=\))")
_WRAPPERS = ("FSDP", "FullyShardedDataParallel", "DistributedDataParallel")
_WHOLE_COLUMNS = {("cpu_ops", "module"): "module"}
_NAMES = {
    "cpu_ops": "name",
    "annotations": "name",
    "python_frames": "name",
    "other_events": "name",
    "flight_records": "stack",
    "flight_stacks": "stack",
}


@cache
def alias(kind: str, value: str) -> str:
    """Stable alias of a name, as in "host-1f3a9c2e"."""
    return f"{kind}-{sha256(value.encode()).hexdigest()[:8]}"


def alias_path(path: str) -> str:
    """Alias of a path that keeps what kind of file it is."""
    ending = re.search(r"(\.json(?:\.gz)?|\.\w{1,8})$", path)
    return alias("path", path) + (ending.group(1) if ending else "")


@cache
def redacted_name(name: str) -> str:
    """A name with its paths, module names and arguments in brackets replaced by aliases."""
    text = _MODULE.sub(lambda match: alias("module", match.group()), name)
    if name.startswith(_WRAPPERS):
        text = _SCOPED.sub(lambda match: alias("module", match.group()), text)
    return _PATH.sub(lambda match: alias("path", match.group()), text)


def redacted(table: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of a table without names that identify somebody."""
    for (name, column), kind in _WHOLE_COLUMNS.items():
        if name == table:
            rows = _replaced(rows, column, {v: alias(kind, v) for v in _values(rows, column)})
    if named := _NAMES.get(table):
        rows = _replaced(rows, named, {v: redacted_name(v) for v in _values(rows, named)})
    return rows


def redacted_capture(capture: Capture) -> Capture:
    """Facts of a rank without host and path."""
    return replace(
        capture,
        host=alias("host", capture.host) if capture.host else None,
        source=replace(capture.source, path=alias_path(capture.source.path)),
        beside=tuple(replace(each, path=alias_path(each.path)) for each in capture.beside),
    )


def _values(rows: pl.DataFrame, column: str) -> list[str]:
    return rows[column].drop_nulls().unique().to_list()


def _replaced(rows: pl.DataFrame, column: str, names: dict[str, str]) -> pl.DataFrame:
    if not names:
        return rows
    return rows.with_columns(pl.col(column).replace_strict(names, default=pl.col(column)))
