"""The modules of a job's models, and hooks that time their calls."""

from __future__ import annotations

import gc
import sys
from contextlib import nullcontext
from threading import get_ident
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_DEPTH = 3
MAX_TRIED = 300
"""Modules that are timed for one step, to find those that take most of it."""
NO_BACKWARD = -1
"""What torch gives as the task of a thread that runs no backward pass."""


class Around(Protocol):
    """What is told of every call that is timed, with the time of the moment in ns."""

    def before(self, now_ns: int) -> None:
        """A call begins."""

    def after(self, now_ns: int) -> None:
        """A call has ended."""


class OnDevice(Protocol):
    """What times a call on the device."""

    def begin(self) -> Any:
        """A call begins; what this gives is given back at its end."""

    def end(self, part: str, begin: Any) -> None:
        """It has ended."""


class SpanHook:
    """Times the calls of one module in this thread. A copy or a pickle of the module is not timed.

    A call inside a call counts with the outer one, and what a backward pass computes once more for
    checkpointed activations belongs to the backward pass.
    """

    def __init__(
        self,
        name: str,
        module: Any,
        add: Callable[[str, int], None],
        *,
        is_model: bool = False,
        around: Around | None = None,
        device: OnDevice | None = None,
    ) -> None:
        """Hook into the module: `add` gets its name and the ns of each call."""
        self.name = name
        self.n_calls = 0
        self.total_ns = 0
        self.is_model = is_model
        self._add, self._around, self._device = add, around, device
        self._thread = get_ident()
        self._backward: Callable[[], int] = sys.modules["torch"]._C._current_graph_task_id  # noqa: SLF001 - what torch's own hooks ask
        self._n_open = 0
        self._began_ns = 0
        self._begin: Any = None
        self._handles = [
            module.register_forward_pre_hook(Hook(self._enter)),
            # Called after an exception too: else its call would stay open.
            module.register_forward_hook(Hook(self._leave), always_call=True),
        ]

    def remove(self) -> None:
        """Take the hooks away."""
        for handle in self._handles:
            handle.remove()

    def end_step(self) -> None:
        """Count anew; a call that Ctrl-C has ended leaves nothing open."""
        self.n_calls = self.total_ns = self._n_open = 0

    def _enter(self, *_: Any) -> None:
        if get_ident() != self._thread:
            return
        self.n_calls += 1
        if self._backward() != NO_BACKWARD:
            return
        self._n_open += 1
        if self._n_open == 1:
            self._began_ns = perf_counter_ns()
            if self._around is not None:
                self._around.before(self._began_ns)
            if self._device is not None:
                self._begin = self._device.begin()

    def _leave(self, *_: Any) -> None:
        now_ns = perf_counter_ns()
        if get_ident() != self._thread or self._backward() != NO_BACKWARD:
            return
        if self._n_open == 1:
            dur_ns = now_ns - self._began_ns
            self.total_ns += dur_ns
            self._add(self.name, dur_ns)
            if self._device is not None:
                self._device.end(self.name, self._begin)
            if self._around is not None:
                self._around.after(now_ns)
        self._n_open = max(self._n_open - 1, 0)


class Hook:
    """Calls a function as torch calls a hook of a module; copied or pickled, it does nothing."""

    __slots__ = ("_function", "_is_compiling")

    def __init__(self, function: Callable[..., None]) -> None:
        """Call this one."""
        self._function = function
        self._is_compiling = sys.modules["torch"].compiler.is_compiling

    def __call__(self, *called: Any) -> None:
        """Return nothing, so that what the module takes and gives stays as it is."""
        if not self._is_compiling():  # what is compiled from now on has no break here
            self._function(*called)

    def __reduce__(self) -> tuple[Any, ...]:
        """Become a method of the standard library that takes anything and does nothing.

        So a saved model can be loaded where there is no tracekit.
        """
        return getattr, (nullcontext(), "__exit__")


def found_models(
    add: Callable[[str, int], None], around: Around, device: OnDevice | None = None
) -> list[SpanHook]:
    """Hooks for the job's models and their parts; a model is a module that lies in no other.

    Where something is compiled, only whole models are timed: a hook inside would break its graph.
    Modules of TorchScript take no hooks.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or not hasattr(getattr(torch, "compiler", None), "is_compiling"):
        return []  # before 2.3, torch does not say what hooks must know

    def can_hook(kind: type) -> bool:
        # By type: isinstance would ask objects of libraries for their class, and some warn then.
        return issubclass(kind, torch.nn.Module) and not issubclass(kind, torch.jit.ScriptModule)

    modules = [each for each in gc.get_objects() if can_hook(type(each))]
    inside = {id(child) for module in modules for child in module.children()}
    hooks = []
    for index, root in enumerate(
        module
        for module in modules
        if id(module) not in inside and next(module.parameters(), None) is not None
    ):
        name = type(root).__name__ if index == 0 else f"{type(root).__name__} {index}"
        hooks.append(SpanHook(name, root, add, is_model=True, around=around, device=device))
        if any(_is_compiled(module) for module in root.modules()):
            continue
        parts = [each for each in root.named_modules() if each[0] and can_hook(type(each[1]))]
        parts.sort(key=lambda each: each[0].count("."))  # of a large model, all layers first
        hooks += [
            SpanHook(f"{name}.{path}", part, add, around=around, device=device)
            for path, part in parts[: max(MAX_TRIED - len(hooks), 0)]
            if path.count(".") < MAX_DEPTH
        ]
    return hooks


def largest(hooks: list[SpanHook], max_calls: int) -> list[SpanHook]:
    """Keep the models, and of their parts those that took longest within so many calls a step.

    A model that is called more often than that is not timed either; one that was not called, such
    as a copy for evaluation, stays.
    """
    ordered = sorted(hooks, key=lambda hook: (not hook.is_model, -hook.total_ns))
    kept: list[SpanHook] = []
    n_calls = 0
    for hook in ordered:
        if (hook.is_model or hook.n_calls) and n_calls + hook.n_calls <= max_calls:
            n_calls += hook.n_calls
            kept.append(hook)
        else:
            hook.remove()
    return kept


def _is_compiled(module: Any) -> bool:
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None
