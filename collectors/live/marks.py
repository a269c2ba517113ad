"""Spans that a trace shows beside torch's own: phases of a step, collections of garbage.

torch has a record of collections of its own, but writes it with Python stacks only.
"""

from __future__ import annotations

import gc
from typing import Any

GC = "tracekit.gc generation"
"""Name of the mark of a collection, followed by its generation."""
MAX_LETTERS = 200
"""Of what a job calls its phases and samples."""


def clean(text: str) -> str:
    """Text as UTF-8 can hold it, not too long."""
    return text[:MAX_LETTERS].encode("utf-8", "replace").decode()


def marked(name: str) -> Any:
    """Begin a span that every profiler of torch records; end it with `__exit__`."""
    from torch.autograd.profiler import record_function  # noqa: PLC0415 - the job has it loaded

    mark = record_function(name)
    mark.__enter__()
    return mark


class GcMarks:
    """Marks every collection from `start` to `stop` as a span of the thread it stopped."""

    def __init__(self) -> None:
        """Nothing is marked yet."""
        self._open: list[Any] = []

    def start(self) -> None:
        """Begin."""
        if self._mark not in gc.callbacks:
            gc.callbacks.append(self._mark)

    def stop(self) -> None:
        """End; a mark that is open is closed."""
        if self._mark in gc.callbacks:
            gc.callbacks.remove(self._mark)
        while self._open:
            self._open.pop().__exit__(None, None, None)

    def _mark(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._open.append(marked(f"{GC} {info['generation']}"))
        elif self._open:
            self._open.pop().__exit__(None, None, None)
