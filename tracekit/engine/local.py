"""Ranks in processes of this machine.

They start by spawn: a forked one hangs for ever once the parent has run one Polars query, since it
inherits the locks of a thread pool whose threads it does not have.
"""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from tracekit.engine import Engine, Work
from tracekit.engine._mapping import InProcess
from tracekit.engine._worker import POLARS_THREADS, n_cores
from tracekit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Answer = TypeVar("Answer")
P = ParamSpec("P")


@contextmanager
def _start(rest: str | None, work: Work) -> Iterator[Executor]:
    """A pool of at most as many processes as there are tasks; one worker is this process."""
    cores = n_cores()
    n_workers = min(_n_wanted(rest) or cores, work.n_tasks)
    if n_workers <= 1:
        yield InProcess()
        return
    import multiprocessing  # noqa: PLC0415 - `--help` needs no pool
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415

    # Workers start when tasks are submitted, so the variable stays set for the whole block.
    with _environment(POLARS_THREADS, str(max(1, cores // n_workers))):
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(n_workers, mp_context=context)
        try:
            yield _Undisturbed(pool)
        except KeyboardInterrupt:
            for worker in multiprocessing.active_children():
                worker.terminate()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


class _Undisturbed(Executor):
    """Starts workers that ignore Ctrl-C, from their first instruction: this process ends them."""

    def __init__(self, pool: Executor) -> None:
        """Submit to this pool."""
        self._pool = pool

    def submit(
        self, fn: Callable[P, Answer], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[Answer]:
        """The pool's future; a worker that this starts ignores the signal."""
        with _interrupts_ignored():
            return self._pool.submit(fn, *args, **kwargs)


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Ignore the signal for a moment.

    A signal that is ignored stays so in a process started meanwhile, so a worker that is still
    importing prints no traceback.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _n_wanted(rest: str | None) -> int | None:
    """The number of processes asked for; null means one for each core."""
    if rest is None:
        return None
    if not (rest.isascii() and rest.isdigit() and int(rest) > 0):
        raise UsageError(
            f"--engine local:{rest}: {rest!r} is not a number of processes",
            hint="As in --engine local:4",
        )
    return int(rest)


@contextmanager
def _environment(variable: str, value: str) -> Iterator[None]:
    """Set a variable, and put back what it was."""
    before = os.environ.get(variable)
    os.environ[variable] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before


ENGINE = Engine(id="local", forms=("local", "local:N processes"), start=_start)
