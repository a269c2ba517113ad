"""The modules of a job's models, and hooks that time their calls."""

from __future__ import annotations

import gc
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_DEPTH = 3
MAX_TRIED = 300
"""Modules that are timed for one step, to find those that take most of it."""


class SpanHook:
    """Times the calls of one module. A copy or a pickle of the module takes along nothing of it."""

    def __init__(
        self,
        name: str,
        module: Any,
        add: Callable[[str, int], None],
        before: Callable[[], None] | None = None,
        after: Callable[[], None] | None = None,
    ) -> None:
        """Hook into the module: `add` gets its name and the ns of each call."""
        self.name = name
        self.n_calls = 0
        self.total_ns = 0
        self.is_model = before is not None
        self._add, self._before, self._after = add, before, after
        self._began_ns: list[int] = []
        self._handles = [
            module.register_forward_pre_hook(_Callback(self._enter)),
            module.register_forward_hook(_Callback(self._leave)),
        ]

    def remove(self) -> None:
        """Take the hooks away."""
        for handle in self._handles:
            handle.remove()

    def end_step(self) -> None:
        """Count anew; a call that raised leaves nothing open."""
        self.n_calls = self.total_ns = 0
        self._began_ns.clear()

    def _enter(self) -> None:
        if self._before is not None:
            self._before()
        self._began_ns.append(time.perf_counter_ns())

    def _leave(self) -> None:
        if self._began_ns:
            dur_ns = time.perf_counter_ns() - self._began_ns.pop()
            self.n_calls += 1
            self.total_ns += dur_ns
            self._add(self.name, dur_ns)
        if self._after is not None:
            self._after()


class _Callback:
    """Calls a function without the module's arguments; copied or pickled, it does nothing."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[], None]) -> None:
        """Call this one."""
        self._function = function

    def __call__(self, *_: Any) -> None:
        """As torch calls a hook: it returns nothing, so the module's result stays."""
        self._function()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Callback, (_nothing,)


def _nothing() -> None:
    """What a copied hook calls."""


def found_models(
    add: Callable[[str, int], None], before: Callable[[], None], after: Callable[[], None]
) -> list[SpanHook]:
    """Hooks for the job's models and their parts; a model is a module that lies in no other.

    Where something is compiled, only whole models are timed: a hook inside would break its graph.
    """
    nn: Any = sys.modules.get("torch.nn.modules.module")
    if nn is None:
        return []
    # By type: isinstance would ask objects of libraries for their class, and some warn then.
    modules = [each for each in gc.get_objects() if issubclass(type(each), nn.Module)]
    inside = {id(child) for module in modules for child in module.children()}
    hooks = []
    for index, root in enumerate(
        module
        for module in modules
        if id(module) not in inside and next(module.parameters(), None) is not None
    ):
        name = type(root).__name__ if index == 0 else f"{type(root).__name__} {index}"
        hooks.append(SpanHook(name, root, add, before, after))
        if any(_is_compiled(module) for module in root.modules()):
            continue
        hooks += [
            SpanHook(f"{name}.{path}", module, add)
            for path, module in root.named_modules()
            if path and path.count(".") < MAX_DEPTH
        ][: MAX_TRIED - len(hooks)]
    return hooks


def largest(hooks: list[SpanHook], max_calls: int) -> list[SpanHook]:
    """Keep the models, and of their parts those that took longest within so many calls a step."""
    ordered = sorted(hooks, key=lambda hook: (not hook.is_model, -hook.total_ns))
    kept: list[SpanHook] = []
    n_calls = 0
    for hook in ordered:
        n_calls += hook.n_calls
        if hook.is_model or (hook.n_calls and n_calls <= max_calls):
            kept.append(hook)
        else:
            hook.remove()
    return kept


def _is_compiled(module: Any) -> bool:
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None
