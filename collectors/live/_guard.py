"""What keeps a fault of the recorder away from the training loop."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

log = logging.getLogger("tracekit")


@contextmanager
def quiet(what: str, undo: Callable[[], None] | None = None) -> Iterator[None]:
    """Turn what the block raises into one line on the log of the job, then `undo`.

    Ctrl-C and an exit are the loop's own and pass.
    """
    try:
        yield
    except Exception as error:
        log.warning("tracekit: %s: %s: %s", what, type(error).__name__, error)
        log.debug("where it was raised", exc_info=True)
        if undo is not None:
            with quiet(what):
                undo()
