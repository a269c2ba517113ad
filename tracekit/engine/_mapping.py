"""The map over ranks, the same for every engine, and what it says of tasks that were lost."""

from __future__ import annotations

from concurrent.futures import BrokenExecutor, Executor, Future, as_completed
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Item = TypeVar("Item")
Answer = TypeVar("Answer")
P = ParamSpec("P")

N_NAMED = 5
"""Items an error names before it only counts them."""

KILLED = "a worker process ended before its work was done"
KILLED_HINT = (
    "Mostly the memory was not enough: use fewer workers, as in --engine local:1. "
    "A script that calls tracekit does so under: if __name__ == '__main__':"
)


class LostWorkError(BrokenExecutor):
    """What a future of an engine raises when its worker, not its task, has failed."""

    def __init__(self, message: str, *, hint: str, is_one: bool = False) -> None:
        """Keep what happened; `is_one`: to this task alone, and not to all that are open."""
        super().__init__(message)
        self.hint = hint
        self.is_one = is_one


class InProcess(Executor):
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
        try:
            answers[index] = future.result()
        except LostWorkError as error:
            if not error.is_one:
                raise
            raise TracekitError(f"{name(items[index])}: {error}", hint=error.hint) from error
        if on_done is not None:
            on_done(items[index], answers[index])

    try:
        for index, item in enumerate(items):
            future = executor.submit(function, item)
            tasks[future] = index
            if future.done():  # say so before the next begins
                take(future)
        for future in as_completed([task for task in tasks if tasks[task] not in answers]):
            take(future)
    except BrokenExecutor as error:
        open_names = [name(item) for index, item in enumerate(items) if index not in answers]
        raise _lost(error, open_names) from error
    finally:
        for future in tasks:
            future.cancel()
    return [answers[index] for index in range(len(items))]


def _lost(error: BrokenExecutor, names: list[str]) -> TracekitError:
    why, hint = (error, error.hint) if isinstance(error, LostWorkError) else (KILLED, KILLED_HINT)
    shown = ", ".join(names[:N_NAMED])
    more = f" and {len(names) - N_NAMED} more" if len(names) > N_NAMED else ""
    return TracekitError(f"{why}; not finished: {shown}{more}", hint=hint)
