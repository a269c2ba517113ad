"""What is timed for the summary of a step: modules, optimizer, data loader, garbage collection.

Models are found by themselves, and of their modules those are timed that take most of a step, few
enough that timing costs little: `MAX_CALLS` spans a step. The backward pass has no hooks, since
those of torch change its graph: it is what lies between the end of a forward pass and what is next.
Spans are those of the host: on a GPU, a module's is the time to launch it. `device_times.py` times
some of them there as well.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from tracekit.collectors.live.modules import SpanHook, found_models, largest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.collectors.live.device_times import DeviceTimes
    from tracekit.collectors.live.summary import StepSummary

MAX_CALLS = 24
"""Timed calls of modules in a step. One costs some 10 µs of the training thread."""
MAX_STEPS_OVER = 2
"""Steps with more calls, one after the other: a single one may be an evaluation."""
NO_THREAD = -1
LOADER, AFTER_FORWARD, OPTIMIZER, CLOSURE, COLLECTION = (
    "data loader",
    "after forward (backward, loss)",
    "optimizer",
    "optimizer (calls forward, backward)",
    "garbage collection",
)


class Parts:
    """Times the parts of the steps of the thread that makes it, on the host and on its device."""

    def __init__(self, summary: StepSummary, device: DeviceTimes) -> None:
        """Nothing is hooked before `start`."""
        self._summary = summary
        self._device = device
        self._thread = threading.get_ident()
        self._undo: list[Callable[[], None]] = []
        self._hooks: list[SpanHook] = []
        self._n_steps = 0
        self._n_steps_over = 0
        self._n_inside = 0
        self._forward_ended_ns = 0
        self._after_forward: Any = None
        self._began: dict[str, tuple[int, Any]] = {}

    def start(self) -> None:
        """Hook into Python and what the job has loaded of torch."""
        gc.callbacks.append(self._on_gc)
        optimizer: Any = sys.modules.get("torch.optim.optimizer")
        if hasattr(optimizer, "register_optimizer_step_pre_hook"):
            before = optimizer.register_optimizer_step_pre_hook(self._on_optimizer)
            after = optimizer.register_optimizer_step_post_hook(self._after_optimizer)
            self._undo += [before.remove, after.remove]
        loader: Any = sys.modules.get("torch.utils.data.dataloader")
        if loader is not None:
            self._time_loader(loader._BaseDataLoaderIter)  # noqa: SLF001 - all loaders have it

    def stop(self) -> None:
        """Take every hook away; one that somebody has wrapped since adds nothing from now on."""
        self._thread = NO_THREAD
        if self._on_gc in gc.callbacks:
            gc.callbacks.remove(self._on_gc)
        for undo in self._undo:
            undo()
        for hook in self._hooks:
            hook.remove()
        self._undo, self._hooks = [], []

    def end_step(self) -> None:
        """A step has ended. After the first the models are there, after the second their spans."""
        self._end_forward(time.perf_counter_ns())
        self._n_steps += 1
        self._n_inside = 0
        self._began.clear()  # of an optimizer that raised
        is_over = sum(hook.n_calls for hook in self._hooks) > MAX_CALLS
        self._n_steps_over = self._n_steps_over + 1 if is_over else 0
        if self._n_steps == 1:
            self._hooks = found_models(self._add, self, self._device)
        elif self._n_steps == 2 or self._n_steps_over == MAX_STEPS_OVER:
            self._hooks = largest(self._hooks, MAX_CALLS)
        for hook in self._hooks:
            hook.end_step()
        if self._n_steps > 1:  # before that, every module is timed
            self._device.find()

    def before(self, now_ns: int) -> None:
        """A module is called: if by none that is timed, a forward pass begins."""
        if self._n_inside == 0:
            self._end_forward(now_ns)
        self._n_inside += 1

    def after(self, now_ns: int) -> None:
        """The call has ended: if it lies in none that is timed, a forward pass has."""
        self._n_inside = max(self._n_inside - 1, 0)
        if self._n_inside == 0:
            self._forward_ended_ns = now_ns
            self._after_forward = self._device.begin()

    def _is_ours(self) -> bool:
        """Whether this is the thread whose steps are timed."""
        return threading.get_ident() == self._thread

    def _add(self, part: str, dur_ns: int) -> None:
        if self._is_ours():
            self._summary.add(part, dur_ns)

    def _end_forward(self, now_ns: int) -> None:
        """What ran since the forward pass ends here."""
        if self._forward_ended_ns:
            self._add(AFTER_FORWARD, now_ns - self._forward_ended_ns)
            self._device.end(AFTER_FORWARD, self._after_forward)
            self._forward_ended_ns = 0

    def _on_optimizer(self, _: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        if not self._is_ours():
            return
        now_ns = time.perf_counter_ns()
        self._end_forward(now_ns)
        closure = named.get("closure", args[1] if len(args) > 1 else None)
        part = OPTIMIZER if closure is None else CLOSURE
        self._began[part] = now_ns, self._device.begin()

    def _after_optimizer(self, *_: Any) -> None:
        if self._is_ours():
            if CLOSURE in self._began:
                self._end_forward(time.perf_counter_ns())
            self._end(OPTIMIZER)
            self._end(CLOSURE)

    def _on_gc(self, phase: str, _: dict[str, int]) -> None:
        if not self._is_ours():
            return
        if phase == "start":
            self._began[COLLECTION] = time.perf_counter_ns(), None
        else:
            self._end(COLLECTION)

    def _end(self, part: str) -> None:
        if part in self._began:
            began_ns, begin = self._began.pop(part)
            self._add(part, time.perf_counter_ns() - began_ns)
            self._device.end(part, begin)

    def _time_loader(self, kind: Any) -> None:
        """Time how long the loop waits for a batch."""
        inner = kind.__next__

        def timed(iterator: Any) -> Any:
            if not self._is_ours():
                return inner(iterator)
            began_ns = time.perf_counter_ns()
            self._end_forward(began_ns)
            batch = inner(iterator)
            self._add(LOADER, time.perf_counter_ns() - began_ns)
            return batch

        def restore() -> None:
            if kind.__next__ is timed:  # else somebody has wrapped it since: theirs stays
                kind.__next__ = inner

        kind.__next__ = timed
        self._undo.append(restore)
