"""`with AccelerateCollection(accelerator, run_dir) as c: … c.step()`: records a loop of Accelerate.

Accelerate has no trainer: the loop is the job's own, and calls `step` once for each batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from tracekit.collectors.callbacks.loop import SAVING, Loop

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager
    from pathlib import Path
    from types import TracebackType


class AccelerateCollection:
    """As what `collect` gives; batches whose gradients are accumulated belong to one step."""

    def __init__(self, accelerator: Any, run_dir: str | Path, **options: Any) -> None:
        """Record into this folder, which all ranks share; options are those of `collect`.

        Raises:
            UsageError: an option does not fit.
        """
        self._accelerator = accelerator
        self._loop = Loop(run_dir, options)

    def __enter__(self) -> Self:
        """Begin, on the rank that Accelerate says."""
        self._loop.begin(self._accelerator.process_index, self._accelerator.num_processes)
        for method in ("save_state", "save_model"):
            self._loop.mark(self._accelerator, method, SAVING)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Save what a window holds."""
        self._loop.end()

    def step(self) -> None:
        """A batch is done. It ends a step where `accelerator.accumulate` let the optimizer step."""
        if self._accelerator.sync_gradients:
            self._loop.step()

    def samples(self, lengths: Iterable[int], *, modality: str | None = None) -> None:
        """Say what this step trains on, as in `collect`."""
        self._loop.samples(lengths, modality)

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Mark a part of the step, as in `collect`."""
        return self._loop.phase(name)
