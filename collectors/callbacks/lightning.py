"""`Trainer(…, callbacks=[TracekitCallback(run_dir)])`: records a Trainer of Lightning.

It works with both of its names: `lightning`, and `pytorch_lightning` where the job imports that.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tracekit.collectors.callbacks.loop import EVALUATION, SAVING, Loop

if TYPE_CHECKING:
    from pathlib import Path


def _package() -> str:
    """The name of Lightning that the job has imported, else one that is installed."""
    names = ("lightning.pytorch", "pytorch_lightning")
    for name in names:
        if name in sys.modules:
            return name
    return names[0] if find_spec("lightning") is not None else names[1]


_Callback: Any = import_module(_package()).Callback


class TracekitCallback(_Callback):  # type: ignore[misc] # which class it is, the job decides
    """Each optimizer step is a step; batches, evaluation and saving are noted.

    What the Trainer does between two steps belongs to the second: it validates, saves and fetches
    the next batch.
    """

    def __init__(self, run_dir: str | Path, **options: Any) -> None:
        """Record into this folder, which all ranks share; options are those of `collect`.

        Raises:
            UsageError: an option does not fit.
        """
        super().__init__()
        self._loop = Loop(run_dir, options)
        self._n_steps = 0

    def on_train_start(self, trainer: Any, *_: Any) -> None:
        """Begin, on the rank that the Trainer says."""
        self._loop.begin(trainer.global_rank, trainer.world_size)
        self._n_steps = trainer.global_step
        # Its callbacks are asked what to save, and not told when it is written.
        self._loop.mark(trainer, "save_checkpoint", SAVING)

    def on_train_batch_start(self, _trainer: Any, _module: Any, batch: Any, *_: Any) -> None:
        """Keep the lengths of the batch."""
        self._loop.note(batch)

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """End the step if an optimizer has stepped: not while gradients are accumulated."""
        if trainer.global_step != self._n_steps:
            self._n_steps = trainer.global_step
            self._loop.step()

    def on_validation_start(self, *_: Any) -> None:
        """An evaluation begins."""
        self._loop.enter(EVALUATION)

    def on_validation_end(self, *_: Any) -> None:
        """The evaluation has ended."""
        self._loop.enter(None)

    def on_train_end(self, *_: Any) -> None:
        """Save what a window holds."""
        self._loop.end()

    def on_exception(self, *_: Any) -> None:
        """Save what a window holds."""
        self._loop.end()
