"""Where the work of each rank runs: one interface, `concurrent.futures.Executor`.

One module for each engine, found by its `ENGINE`; adding one edits no file. Modules whose name
begins with an underscore are what engines are made of.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.discovery import exported, modules_of
from tracekit.engine._mapping import map_ranks
from tracekit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ALLOCATORS", "Engine", "Work", "engine_forms", "engines", "map_ranks", "open_engine"]

ALLOCATORS = {
    "_RJEM_MALLOC_CONF": "dirty_decay_ms:2,muzzy_decay_ms:0",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
"""Variables that keep a process small which reads in small pieces, where they are set before Polars
and pyarrow are imported: Polars' allocator gives freed pages back after 2 ms (its own 0.5 s take
more memory, at once takes up to a tenth more CPU), and Arrow's keeps none of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What an engine is opened for.

    `n_tasks` is how many tasks there are. All of them write into `folder` and read `files`, which
    an engine whose workers run on other machines makes sure they see.
    """

    n_tasks: int
    folder: Path | None = None
    files: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A place where tasks run, chosen by `--engine id` or `--engine id:rest`.

    `forms` are the ways to write it, for the help. `start` gets what stands behind the colon (None
    without one); leaving its block gives back what it took.
    """

    id: str
    forms: tuple[str, ...]
    start: Callable[[str | None, Work], AbstractContextManager[Executor]]


@cache
def engines() -> dict[str, Engine]:
    """All engines by id, in order of id."""
    return exported(modules_of(__name__), "ENGINE", Engine)


def engine_forms() -> str:
    """The ways to name an engine, the default first."""
    return ", ".join(
        form
        for engine in sorted(engines().values(), key=lambda each: each.id != "local")
        for form in engine.forms
    )


def open_engine(
    spec: str, *, n_tasks: int, folder: Path | None = None, files: Sequence[Path] = ()
) -> AbstractContextManager[Executor]:
    """Give an executor for `n_tasks` tasks; leaving the block ends the workers it started.

    One task runs in this process: a second one would only add the seconds it takes to start and
    the copies of what it returns, and nothing would run beside it.

    Args:
        spec: `local` (as many processes as cores), `local:N` (at most N), or another of `engines`.
        n_tasks: How many tasks there are; more workers are never started.
        folder: Where the tasks write; made before the first of them is submitted.
        files: What they read.

    Raises:
        UsageError: the engine does not exist, or cannot be used from here.
        TracekitError: it cannot be reached.
    """
    kind, colon, rest = spec.partition(":")
    engine = engines().get(kind)
    if engine is None:
        raise UsageError(f"--engine {spec}: unknown", hint=f"There are: {engine_forms()}")
    work = Work(n_tasks=n_tasks, folder=folder, files=tuple(files))
    return engine.start(rest if colon else None, work)
