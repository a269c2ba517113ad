"""Collectors: one module per source of data, found by `COLLECTOR`; adding one edits no file.

Packages beside them record what a job does while it runs: `live` inside its processes, `telemetry`
and `clocks` in one of their own. A training process imports this package too, so that importing it
loads no Polars.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.discovery import exported, modules_of

if TYPE_CHECKING:  # no one asks for the types of these dataclasses at run time
    from tracekit.schema import Table  # noqa: TC004
    from tracekit.store import Capture, Check  # noqa: TC004


@dataclass(frozen=True, slots=True, kw_only=True)
class Peek:
    """What a look at one file tells about the run it belongs to. A null was not recorded.

    `started_ns` is Unix time; `run_key` is equal for all files of one run where the source says so
    (job, group trace id) and different for files of different runs; `digest` is equal for copies.
    A file that holds several ranks lists them in `ranks`; each is converted by itself. Where they
    stand for all others (`are_all`), none is missing. What measures a fabric and no job is of
    whichever job lies beside it (`is_of_any_job`). Where a rank's state is taken again and again,
    `snapshot` orders what was taken: a later or fuller one is larger.
    """

    rank: int | None = None
    ranks: tuple[int, ...] = ()
    are_all: bool = False
    world_size: int | None = None
    started_ns: int | None = None
    run_key: str | None = None
    trace_id: str | None = None
    digest: str = ""
    is_of_any_job: bool = False
    snapshot: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFile:
    """One file to convert: its rank and how the rank is known.

    `also` are files of other collectors that say more of this rank: their id and path. The first
    one of its run (`is_first`) takes what is said of all ranks together.
    """

    path: Path
    rank: int
    rank_source: str
    world_size: int | None = None
    host: str | None = None
    also: tuple[tuple[str, Path], ...] = ()
    is_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What a file beside a trace added to the trace's rank; `n_rows` are those of whole tables."""

    host: str | None
    n_rows: dict[str, int]
    versions: dict[str, str]
    environment: dict[str, str]
    quality: tuple[Check, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to convert."""

    epoch_ns: int = 0
    is_redacted: bool = False


def _nothing_known(_path: Path) -> None:
    """Has a name, since collectors are pickled for the workers."""


def _stands_alone(_path: Path) -> bool:
    """Has a name, since collectors are pickled for the workers."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Collector:
    """A source of data.

    `sniff` reads at most 64 KiB of a file and says whether it is of this kind (exactly one
    collector may); `peek` tells rank and run; `convert` writes one rank's tables into a run folder
    and says what was read, written, dropped and why. It runs in a worker process. `code` identifies
    the version of the collector: what another version wrote is converted again. `why_not` says what
    a file of the same format lacks, in a few words, and None of other files. `beside` adds what a
    file says of a rank to the tables of that rank's trace: files of such a collector join the run
    that they lie beside, and are one of their own only alone. Where the files count together only
    (`is_joined_whole`), they join a run that has all their ranks, or none. `is_part` says of a file
    that it is read along with another one that `sniff` knows, so that it is not left out.
    """

    id: str
    title: str
    produces: tuple[Table, ...]
    sniff: Callable[[Path], bool]
    peek: Callable[[Path], Peek]
    convert: Callable[[RankFile, Path, Options], Capture]
    code: Callable[[], str]
    why_not: Callable[[Path], str | None] = _nothing_known
    beside: Callable[[RankFile, Path, Options], Beside] | None = None
    is_joined_whole: bool = False
    is_part: Callable[[Path], bool] = _stands_alone


@cache
def collectors() -> dict[str, Collector]:
    """All collectors by id, in order of id."""
    return exported(modules_of(__name__), "COLLECTOR", Collector)


def sniffed(path: Path) -> Collector | None:
    """The collector that reads a file, None where no one does."""
    return next((each for each in collectors().values() if each.sniff(path)), None)


__all__ = ["Beside", "Collector", "Options", "Peek", "RankFile", "collectors", "sniffed"]
