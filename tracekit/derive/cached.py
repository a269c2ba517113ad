"""Derived tables on disk, and answers in memory: made once per run.

A table on disk is found again by what it was made from.
The key holds the identity of every source and the code of all stages up to here: a new file, a new
rank or a new version makes new tables. A run folder that cannot be written is analysed without.
"""

from __future__ import annotations

import hashlib
import logging
import os
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.schema import Table
    from tracekit.store import Run

Answer = TypeVar("Answer")
P = ParamSpec("P")

log = logging.getLogger(__name__)


def remembered(
    function: Callable[Concatenate[Run, P], Answer],
) -> Callable[Concatenate[Run, P], Answer]:
    """Answer a question about a run once: what every detector asks is worked out for the first.

    For small answers that nobody changes. Arguments must be hashable; another `Run` object, with
    other steps or ranks, is asked anew.
    """

    @wraps(function)
    def ask(run: Run, /, *args: P.args, **kwargs: P.kwargs) -> Answer:
        key = (function, *args, *kwargs.items())
        if key not in run.answers:
            run.answers[key] = function(run, *args, **kwargs)
        answer: Answer = run.answers[key]
        return answer

    return ask


def cached(
    run: Run, table: Table, build: Callable[[], pl.DataFrame], rank: int | None = None
) -> pl.LazyFrame:
    """A derived table of one rank, or of the whole run: read if it is there, else built and kept.

    Raises:
        SchemaError: `build` returned other columns than the table declares.
    """
    path = _path(run, table, rank)
    if path.is_file():
        return pl.scan_parquet(path)
    rows = build()
    table.check(rows)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        rows.write_parquet(temporary, compression="zstd")
        temporary.replace(path)
    except OSError as error:
        log.debug("%s is not kept: %s", path, error)
        return rows.lazy()
    return pl.scan_parquet(path)


def is_cached(run: Run, table: Table, rank: int) -> bool:
    """Whether a derived table of a rank is there already."""
    return _path(run, table, rank).is_file()


def _path(run: Run, table: Table, rank: int | None) -> Path:
    name = "run" if rank is None else f"rank={rank:06d}"
    return run.folder / "derived" / key(run) / table.name / f"{name}.parquet"


def key(run: Run) -> str:
    """Identity of the run's sources and of the code that derives tables from them."""
    return hashlib.sha256(_code() + run.identity.encode()).hexdigest()[:16]


@cache
def _code() -> bytes:
    digest = hashlib.sha256()
    here = Path(__file__).parent
    for path in sorted([*here.glob("*.py"), *(here.parent / "schema").glob("*.py")]):
        digest.update(path.read_bytes())
    return digest.digest()
