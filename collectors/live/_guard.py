"""What keeps a fault of the recorder away from the training loop."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

log = logging.getLogger("tracekit")
_MAX_LETTERS = 300


@contextmanager
def quiet(
    what: str, undo: Callable[[], None] | None = None, said: set[str] | None = None
) -> Iterator[None]:
    """Turn what the block raises into one line on the log of the job, then `undo`.

    Ctrl-C and an exit are the loop's own and pass. What is in `said` is not said again: a step that
    fails does so a million times.
    """
    try:
        yield
    except Exception as error:
        if said is None or what not in said:
            log.warning("tracekit: %s: %s: %s", what, type(error).__name__, _one_line(error))
            log.debug("where it was raised", exc_info=True)
        if said is not None:
            said.add(what)
        if undo is not None:
            with quiet(what):
                undo()


def _one_line(error: Exception) -> str:
    try:
        return " ".join(str(error).split())[:_MAX_LETTERS]
    except Exception:  # noqa: BLE001 - of a class of the job's, whose text fails too
        return ""
