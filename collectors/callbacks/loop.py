"""The loop of a trainer as its callbacks see it: begin, step, phases, end."""

from __future__ import annotations

import atexit
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from tracekit.collectors.callbacks import batches
from tracekit.collectors.live._guard import quiet
from tracekit.collectors.live.hook import collect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from tracekit.collectors.live.hook import Collection

EVALUATION, SAVING = "evaluation", "saving"
"""Phases that trainers have."""


class Loop:
    """Records one run of a training loop after the other, each as an attempt of its own."""

    def __init__(self, run_dir: str | Path, options: dict[str, Any]) -> None:
        """Nothing is recorded before `begin`.

        Raises:
            UsageError: an option of `collect` does not fit.
        """
        self._run_dir = run_dir
        self._options = options
        self._collection: Collection | None = None
        self._phase: str | None = None
        self._open, self._undo = ExitStack(), ExitStack()
        collect(run_dir, **options)

    def begin(self, rank: int, world_size: int) -> None:
        """The first step begins, on this rank as the trainer knows it; what was begun has ended."""
        self.end()
        known = {"rank": rank, "world_size": world_size}
        self._collection = collect(self._run_dir, **known | self._options).__enter__()
        atexit.register(self.end)  # a trainer may say nothing of an exception

    def step(self) -> None:
        """An optimizer step has ended."""
        if self._collection is not None:
            self._collection.step()

    def note(self, batch: Any) -> None:
        """The current step trains on this batch."""
        if self._collection is not None:
            with quiet("the lengths of this batch are not kept"):
                if each := batches.lengths(batch):
                    self.samples(each)

    def samples(self, lengths: Iterable[int], modality: str | None = None) -> None:
        """The current step trains on samples of these lengths."""
        if self._collection is not None:
            self._collection.samples(lengths, modality=modality)

    def enter(self, phase: str | None) -> None:
        """This phase begins if it has not, and the one before has ended."""
        if self._collection is not None and phase != self._phase:
            self._open.close()
            self._phase = phase
            if phase is not None:
                self._open.enter_context(self._collection.phase(phase))

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Mark what runs in the block, if anything is recorded."""
        if self._collection is None:
            yield
            return
        with self._collection.phase(name):
            yield

    def mark(self, owner: Any, method: str, phase: str) -> None:
        """Mark the calls of a method of this object as a phase, until the end of the loop."""
        if method in vars(owner):  # somebody has wrapped it, and may take that away again
            return
        inner: Callable[..., Any] = getattr(owner, method)

        def marked(*args: Any, **kwargs: Any) -> Any:
            with self.phase(phase):
                return inner(*args, **kwargs)

        setattr(owner, method, marked)
        self.at_end(partial(delattr, owner, method))

    def at_end(self, undo: Callable[[], None]) -> None:
        """Call this when the loop has ended."""
        self._undo.callback(undo)

    def end(self) -> None:
        """The loop has ended: save what a window holds, and wait for its conversion."""
        self.enter(None)
        collection, self._collection = self._collection, None
        if collection is not None:
            atexit.unregister(self.end)
            with quiet("the trainer is not as it was"):
                self._undo.close()
            collection.__exit__(None, None, None)
