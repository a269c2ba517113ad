"""Where the work of each rank runs: one interface, `concurrent.futures.Executor`.

Worker processes start by spawn: a forked one hangs for ever once the parent has run one Polars
query, since it inherits the locks of a thread pool whose threads it does not have.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from tracekit.errors import TracekitError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Item = TypeVar("Item")
Answer = TypeVar("Answer")
P = ParamSpec("P")

_THREADS = "POLARS_MAX_THREADS"
_N_NAMED = 5
"""Items an error names before it only counts them."""


@contextmanager
def open_engine(spec: str, *, n_tasks: int) -> Iterator[Executor]:
    """Give an executor for `n_tasks` tasks; leaving the block ends its workers.

    One task, or one worker, runs in this process: a second one would only add the seconds it takes
    to start and the copies of what it returns, and nothing would run beside it.

    Args:
        spec: `local` (as many processes as cores), or `local:N` (at most N).
        n_tasks: How many tasks there are; more workers are never started.

    Raises:
        UsageError: the engine does not exist, or not in this version.
    """
    n_cores = _n_cores()
    n_workers = min(_n_wanted(spec) or n_cores, n_tasks)
    if n_workers <= 1:
        yield _InProcess()
        return
    # Workers start when tasks are submitted, so the variable stays set for the whole block.
    with _environment(_THREADS, str(max(1, n_cores // n_workers))):
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(n_workers, mp_context=context)
        try:
            yield pool
        except KeyboardInterrupt:
            for worker in multiprocessing.active_children():
                worker.terminate()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def map_ranks(
    function: Callable[[Item], Answer],
    items: Sequence[Item],
    *,
    executor: Executor,
    on_done: Callable[[Item, Answer], None] | None = None,
    name: Callable[[Item], str] = str,
) -> list[Answer]:
    """The function's answers, in the order of the items; the first error stops the rest.

    Args:
        function: A function of a module: workers import it by its name.
        items: What it is called with, one a task.
        executor: From `open_engine`.
        on_done: Called in this process, as each task ends, in the order in which they end.
        name: How an error calls an item.

    Raises:
        TracekitError: a task raised one, or a worker was killed.
    """
    tasks: dict[Future[Answer], int] = {}
    answers: dict[int, Answer] = {}

    def take(future: Future[Answer]) -> None:
        index = tasks[future]
        answers[index] = future.result()
        if on_done is not None:
            on_done(items[index], answers[index])

    try:
        for index, item in enumerate(items):
            with nullcontext() if isinstance(executor, _InProcess) else _interrupts_ignored():
                future = executor.submit(function, item)
            tasks[future] = index
            if isinstance(executor, _InProcess):  # done already: say so before the next begins
                take(future)
        for future in as_completed([task for task in tasks if tasks[task] not in answers]):
            take(future)
    except BrokenProcessPool as error:
        raise _killed([name(item) for i, item in enumerate(items) if i not in answers]) from error
    finally:
        for future in tasks:
            future.cancel()
    return [answers[index] for index in range(len(items))]


class _InProcess(Executor):
    """Runs each task when it is submitted, in this process."""

    def submit(
        self, fn: Callable[P, Answer], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[Answer]:
        """A future that is done: with the answer, or with the exception the task raised."""
        future: Future[Answer] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it is raised where the future is read
            future.set_exception(error)
        return future


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Start workers that ignore Ctrl-C, from their first instruction: this process ends them.

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


def _n_wanted(spec: str) -> int | None:
    """The number of processes asked for; null means one for each core."""
    kind, _, rest = spec.partition(":")
    if kind in ("dask", "mpi"):
        raise UsageError(
            f"--engine {spec}: {kind} is not available in this version", hint="Use --engine local"
        )
    if kind != "local":
        raise UsageError(
            f"--engine {spec}: unknown", hint="Use --engine local, or local:N for N processes"
        )
    if spec == "local":
        return None
    if not (rest.isascii() and rest.isdigit() and int(rest) > 0):
        raise UsageError(
            f"--engine {spec}: {rest!r} is not a number of processes", hint="As in --engine local:4"
        )
    return int(rest)


def _n_cores() -> int:
    """Cores this process may use, which in a container or a batch job are fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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


def _killed(names: list[str]) -> TracekitError:
    shown = ", ".join(names[:_N_NAMED])
    more = f" and {len(names) - _N_NAMED} more" if len(names) > _N_NAMED else ""
    return TracekitError(
        f"a worker process ended before its work was done; not finished: {shown}{more}",
        hint="Mostly the memory was not enough: use fewer workers, as in --engine local:1. "
        "A script that calls tracekit does so under: if __name__ == '__main__':",
    )
