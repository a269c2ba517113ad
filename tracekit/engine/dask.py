"""Ranks on the workers of a Dask cluster, which is running already.

The scheduler gives the task of a worker that died to another one, a few times; the error that it
gives up with names the rank.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter, deque
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from tracekit.engine import Engine, Work
from tracekit.engine._mapping import N_NAMED, InProcess, LostWorkError
from tracekit.engine._worker import OnWorkers
from tracekit.errors import TracekitError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distributed import Client
    from distributed import Future as Task

Answer = TypeVar("Answer")
P = ParamSpec("P")

CONNECT_WITHIN_S = 10
WORKERS_WITHIN_S = 60.0
"""How long there may be no worker at all: workers may come later than their scheduler."""

_ADDRESS_HINT = (
    "Start one (dask scheduler), and give the address it prints, as in --engine "
    "dask:tcp://HOST:8786, or its --scheduler-file, as in --engine dask:FILE."
)
_GO_ON = "The same command goes on with the ranks that are left."
_NO_WORKER_HINT = f"Start some: dask worker ADDRESS --nthreads 1. {_GO_ON}"


@contextmanager
def _start(rest: str | None, work: Work) -> Iterator[Executor]:
    """An executor over the cluster's workers; its workers go on when the block is left."""
    if not rest:
        raise UsageError("--engine dask: which scheduler?", hint=_ADDRESS_HINT)
    if work.n_tasks <= 1:
        yield InProcess()
        return
    with _quiet(), _client(rest) as client:
        _check_installed(client)
        tasks = _Tasks(client)
        executor = OnWorkers(tasks, work, n_beside=_n_beside(client))
        try:
            yield executor
        finally:
            tasks.close()
            executor.close()


@contextmanager
def _client(address: str) -> Iterator[Client]:
    """A connection to the scheduler, once it has a worker."""
    try:
        from distributed import Client  # noqa: PLC0415 - only this engine needs it
    except ImportError as error:
        raise UsageError(
            f"--engine dask: {error.name or 'distributed'} is not installed",
            hint="pip install 'tracekit-gpu[dask]'",
        ) from error
    try:
        client = Client(**_place(address), timeout=CONNECT_WITHIN_S, set_as_default=False)
    except OSError as error:
        line = str(error).partition("\n")[0]
        raise TracekitError(
            f"--engine dask:{address}: no scheduler answers within {CONNECT_WITHIN_S} s: {line}",
            hint=_ADDRESS_HINT,
        ) from error
    try:
        client.wait_for_workers(1, timeout=WORKERS_WITHIN_S)
    except TimeoutError as error:
        client.close()
        raise TracekitError(
            f"--engine dask:{address}: the scheduler has had no worker for {WORKERS_WITHIN_S:g} s",
            hint=_NO_WORKER_HINT,
        ) from error
    try:
        yield client
    finally:
        client.close()


def _place(address: str) -> dict[str, str]:
    """The address, or the file with it, as the client takes them."""
    from distributed.comm import get_address_host_port  # noqa: PLC0415

    if "://" not in address and Path(address).is_file():
        return {"scheduler_file": address}
    try:
        get_address_host_port(address)
    except ValueError as error:
        raise UsageError(
            f"--engine dask:{address}: neither a file nor an address: {error}", hint=_ADDRESS_HINT
        ) from error
    return {"address": address}


def _check_installed(client: Client) -> None:
    """Raise an error where tracekit is missing: a worker that cannot unpickle a task just ends."""
    from importlib.metadata import version  # noqa: PLC0415 - each side has it, unlike our modules

    numbers = client.run(version, "tracekit-gpu", on_error="return")
    without = sorted(at for at, number in numbers.items() if isinstance(number, Exception))
    if without:
        raise UsageError(
            f"tracekit is not installed on {len(without)} of {len(numbers)} workers of Dask: "
            f"{', '.join(without[:N_NAMED])}",
            hint="Install it where they and the scheduler run: pip install 'tracekit-gpu[dask]'",
        )


def _n_workers(client: Client) -> int:
    return len(client.scheduler_info(n_workers=-1)["workers"])


def _n_beside(client: Client) -> int:
    """The most workers that one machine has."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    return max(Counter(worker["host"] for worker in workers.values()).values(), default=1)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what Dask logs of a lost connection, with tracebacks, from beside our error."""
    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


class _Tasks(Executor):
    """Dask's tasks as futures, which fail as ours do when a worker or the scheduler is lost.

    No more tasks are handed over than there are workers: when a worker dies, Dask blames all that
    wait in its queue, and would give up ranks that were never begun.
    """

    def __init__(self, client: Client) -> None:
        """Submit to this cluster, and watch its workers."""
        self._client = client
        self._n_workers = _n_workers(client)
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._open: dict[Future[Any], Task] = {}
        self._lock = threading.RLock()
        self._lost = "the scheduler of Dask is lost"
        self._closed = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def submit(
        self, fn: Callable[P, Answer], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[Answer]:
        """A future of a task that any worker may take."""
        future: Future[Answer] = Future()
        self._waiting.append((future, partial(fn, *args, **kwargs)))
        self._hand_over()
        return future

    def close(self) -> None:
        """Give up the tasks that are not done."""
        self._closed.set()
        with suppress(Exception):  # the scheduler may be gone
            self._client.cancel(list(self._open.values()))

    def _hand_over(self) -> None:
        """Give each free worker a task."""
        with self._lock:
            while self._waiting and len(self._open) < self._n_workers and not self._closed.is_set():
                future, call = self._waiting.popleft()
                key = f"tracekit-{os.urandom(16).hex()}"  # what the dashboard shows
                task = self._client.submit(call, key=key, pure=False)
                self._open[future] = task
                task.add_done_callback(partial(self._pass_on, future))

    def _pass_on(self, future: Future[Answer], task: Task) -> None:
        """Settle the future as the task was: called by Dask, in a thread of its own."""
        with self._lock:
            self._open.pop(future, None)
        if not future.set_running_or_notify_cancel():
            return
        try:
            error = task.exception() if task.status == "error" else None
            answer: Any = None if error else task.result()
        except Exception:  # noqa: BLE001 - whatever it is: the cluster has the answer no more
            self._closed.set()
            future.set_exception(LostWorkError(self._lost, hint=_GO_ON))
            return
        self._hand_over()
        if error:
            future.set_exception(_explained(error))
        else:
            future.set_result(answer)

    def _watch(self) -> None:
        """Follow the number of workers; after a while without any, give the tasks up.

        They would wait for ever.
        """
        seen_s = time.monotonic()
        while not self._closed.wait(WORKERS_WITHIN_S / 10):
            with suppress(Exception):  # a lost connection ends the tasks without us
                if n_workers := _n_workers(self._client):
                    seen_s = time.monotonic()
                    self._n_workers = n_workers
                    self._hand_over()
            if time.monotonic() - seen_s >= WORKERS_WITHIN_S:
                self._lost = f"Dask has had no worker for {WORKERS_WITHIN_S:g} s"
                with self._lock:
                    tasks = list(self._open.values())
                self._client.cancel(tasks)
                return


def _explained(error: BaseException) -> BaseException:
    """The error of a task, or ours where it is about its worker."""
    from distributed import KilledWorker  # noqa: PLC0415

    if isinstance(error, KilledWorker):
        n_died = error.allowed_failures + 1
        return LostWorkError(
            f"{n_died} workers of Dask died over it, the last on {error.last_worker.address}",
            hint=f"Mostly the memory was not enough: give each worker more (--memory-limit), or "
            f"start fewer on a machine. Its log says more. {_GO_ON}",
            is_one=True,
        )
    names = (str(error), str(error.__cause__))
    if any("No module named 'tracekit" in name for name in names):
        return UsageError(
            "tracekit is not installed where the scheduler or a worker of Dask runs",
            hint="Install it there: pip install 'tracekit-gpu[dask]'",
        )
    return error


ENGINE = Engine(id="dask", forms=("dask:ADDRESS",), start=_start)
