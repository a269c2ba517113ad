"""`Trainer(…, callbacks=[TracekitCallback(run_dir)])`: records a Trainer of Transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from tracekit.collectors.callbacks.loop import EVALUATION, SAVING, Loop
from tracekit.collectors.live._guard import quiet
from tracekit.collectors.live.modules import Hook

if TYPE_CHECKING:
    from pathlib import Path


class TracekitCallback(TrainerCallback):  # type: ignore[misc] # Transformers is not type-checked here
    """Each optimizer step is a step; batches, evaluation and saving are noted.

    What the Trainer does between two steps belongs to the second: it fetches batches, logs,
    evaluates and saves.
    """

    def __init__(self, run_dir: str | Path, **options: Any) -> None:
        """Record into this folder, which all ranks share; options are those of `collect`.

        Raises:
            UsageError: an option does not fit.
        """
        self._loop = Loop(run_dir, options)

    def on_train_begin(
        self, args: Any, _state: Any, _control: Any, model: Any = None, **_: Any
    ) -> None:
        """Begin, on the rank that the Trainer says."""
        self._loop.begin(args.process_index, args.world_size)
        with quiet("the lengths of batches are not kept"):
            # A Trainer shows its batches to the model alone.
            hook = model.register_forward_pre_hook(Hook(self._on_batch), with_kwargs=True)
            self._loop.at_end(hook.remove)

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """The batches are there: what was between the steps is over."""
        self._loop.enter(None)

    def on_step_end(self, _args: Any, _state: Any, control: Any, **_: Any) -> None:
        """An optimizer step has ended."""
        self._loop.step()
        self._mark_next(control)

    def on_log(self, _args: Any, _state: Any, control: Any, **_: Any) -> None:
        """Evaluating and saving come after it."""
        self._mark_next(control)

    def on_prediction_step(self, *_: Any, **__: Any) -> None:
        """An evaluation runs, even if it was not announced."""
        self._loop.enter(EVALUATION)

    def on_evaluate(self, _args: Any, _state: Any, control: Any, **_: Any) -> None:
        """The evaluation has ended."""
        self._mark_next(control)

    def on_save(self, _args: Any, _state: Any, control: Any, **_: Any) -> None:
        """The checkpoint is written."""
        self._mark_next(control)

    def on_epoch_end(self, _args: Any, _state: Any, control: Any, **_: Any) -> None:
        """As between steps."""
        self._mark_next(control)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Save what a window holds."""
        self._loop.end()

    def _mark_next(self, control: Any) -> None:
        """Begin the phase that the Trainer says comes next: it has no events for their begins."""
        if control.should_log:
            self._loop.enter(None)
        elif control.should_evaluate:
            self._loop.enter(EVALUATION)
        else:
            self._loop.enter(SAVING if control.should_save else None)

    def _on_batch(self, model: Any, _: Any, named: dict[str, Any]) -> None:
        if model.training:
            self._loop.note(named)
