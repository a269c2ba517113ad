"""Tasks on workers that somebody else started, mostly on other machines.

A task travels as bytes that are unpickled only when the worker has been found fit: it runs the same
versions and sees the same files. So a misfit is an error that says what to do, not the traceback of
a missing attribute, and the environment is set before Polars is imported.
"""

from __future__ import annotations

import os
import pickle
import threading
import time
from concurrent.futures import Executor, Future
from contextlib import chdir, nullcontext, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from tracekit.engine import ALLOCATORS
from tracekit.errors import InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.engine import Work

Answer = TypeVar("Answer")
P = ParamSpec("P")

POLARS_THREADS = "POLARS_MAX_THREADS"
SEEN_WITHIN_S = 5.0
"""A network file system may show a new file some seconds late."""

_one_at_a_time = threading.Lock()
"""A rank takes the memory of a process, and the current folder is the process's: a worker with
several threads works on one rank after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What must hold on a worker before its task begins. Paths are absolute.

    `here` becomes the current folder; null where no path depends on it. `n_beside` is how many
    workers share a machine and its cores.
    """

    versions: dict[str, str]
    sees: tuple[Path, ...]
    here: Path | None
    n_beside: int


class OnWorkers(Executor):
    """Submits to an executor whose workers must first be found fit; `close` it at the end."""

    def __init__(self, executor: Executor, work: Work, *, n_beside: int = 1) -> None:
        """Wrap this executor; nothing is written before the first task."""
        self._executor = executor
        self._work = work
        self._n_beside = n_beside
        self._terms: Terms | None = None
        self._token: Path | None = None

    def submit(
        self, fn: Callable[P, Answer], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[Answer]:
        """A future that fails with a `TracekitError` where the worker is not fit."""
        if self._terms is None:
            self._terms = self._agreed()
        payload = pickle.dumps(partial(fn, *args, **kwargs))
        return self._executor.submit(run_task, self._terms, payload)

    def close(self) -> None:
        """Take away the file by which workers were told from others that have a like folder."""
        if self._token is not None:
            with suppress(OSError):
                self._token.unlink()
                self._token.parent.rmdir()  # unless tables have come to it

    def _agreed(self) -> Terms:
        """The terms, with a new file in the run folder that only its own file system shows."""
        folder, files = self._work.folder, self._work.files
        sees = [Path(os.path.abspath(file)) for file in {*files[:1], *files[-1:]}]  # noqa: PTH100 - links stay
        if folder is not None:
            token = folder.absolute() / "derived" / f".seen-{os.urandom(16).hex()}"
            try:
                token.parent.mkdir(exist_ok=True)
                token.touch()
            except OSError:  # a run that can only be read
                sees.append(folder.absolute())
            else:
                self._token = token
                sees.append(token)
        paths = files if folder is None else (folder, *files)
        is_relative = any(not path.is_absolute() for path in paths)
        return Terms(
            versions=versions(),
            sees=tuple(sees),
            here=Path.cwd() if is_relative else None,
            n_beside=self._n_beside,
        )


def run_task(terms: Terms, payload: bytes) -> Any:
    """Run a pickled call, in a worker.

    Raises:
        UsageError: the worker has other versions.
        InputError: it does not see the files.
    """
    with _one_at_a_time:
        _check(terms)
        for variable, value in ALLOCATORS.items():
            os.environ.setdefault(variable, value)
        os.environ.setdefault(POLARS_THREADS, str(max(1, n_cores() // terms.n_beside)))
        with chdir(terms.here) if terms.here else nullcontext():
            return pickle.loads(payload)()  # noqa: S301 - from the process that gives the orders


def _check(terms: Terms) -> None:
    import platform  # noqa: PLC0415 - `--help` needs it not

    host = platform.node()
    if versions() != terms.versions:
        raise UsageError(
            f"the worker on {host} has {_shown(versions())}, not {_shown(terms.versions)}",
            hint="Install the same versions for the workers as here.",
        )
    needed = (*terms.sees, terms.here) if terms.here else terms.sees
    missing = [path for path in needed if not _is_seen(path)]
    if missing:
        raise InputError(
            f"the worker on {host} does not see {missing[0]}",
            hint="The traces and the folder of --output must lie on a file system that all workers "
            "share, under the same path. Archives are unpacked below TMPDIR: set it to a folder "
            "there, or unpack them yourself.",
        )


def _is_seen(path: Path) -> bool:
    deadline_s = time.monotonic() + SEEN_WITHIN_S
    while not path.exists():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.1)
    return True


@cache
def versions() -> dict[str, str]:
    """What must be the same on all sides for results to be the same."""
    from importlib.metadata import version  # noqa: PLC0415 - `--help` needs none

    return {name: version(name) for name in ("tracekit-gpu", "polars")}


def _shown(numbers: dict[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in numbers.items())


def n_cores() -> int:
    """Cores this process may use, which in a container or a batch job are fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
