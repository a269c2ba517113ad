"""Whose turn it is with torch's profiler: two that overlap in one process end it.

torch 2.13 has a session for each thread, Kineto one for the process. A profiler that warms up or
starts while another one does, or that is stopped on another thread, has no session left when it is
saved, and the process ends with a segmentation fault. So ours starts only where there is no other,
and gives way to any that begins.
"""

from __future__ import annotations

import gc
import sys
import threading
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

from tracekit.collectors.live._guard import quiet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MODULE = "torch.autograd.profiler"
_STARTS = ("_prepare_profiler", "_enable_profiler")
"""What every profiler of torch calls to warm up and to start, in that module."""
_lock = threading.Lock()
"""Held by the one profiler of ours that is open."""


class Busy(Exception):  # noqa: N818 - an event, not a mistake
    """Another profiler of torch warms up or runs in this process."""

    def __init__(self) -> None:
        """Say so."""
        super().__init__("another profiler of torch is running in this process")


class Turn:
    """The turn of one of our profilers, on the thread that takes it, until `end`."""

    def __init__(self, give_way: Callable[[], None]) -> None:
        """Take it; `give_way` must call `end`, and is called when another profiler begins.

        Raises:
            Busy: there is another one.
        """
        if not _lock.acquire(blocking=False):
            raise Busy
        if is_enabled() or _is_another_open():
            _lock.release()
            raise Busy
        self._give_way = give_way
        self._here = threading.local()  # the number of a thread that ended goes to a later one
        self._here.is_it = True
        self._is_calling = False
        self._is_over = False
        self._module: Any = sys.modules[_MODULE]
        self._wrapped: dict[str, tuple[Any, Any]] = {}
        for name in _STARTS:
            inner = getattr(self._module, name, None)
            if inner is not None:
                outer = self._giving_way(inner)
                self._wrapped[name] = inner, outer
                setattr(self._module, name, outer)

    def is_of_this_thread(self) -> bool:
        """Whether the profiler may be stepped and stopped here."""
        return getattr(self._here, "is_it", False)

    @contextmanager
    def calling(self) -> Iterator[None]:
        """What the block starts is ours."""
        self._is_calling = True
        try:
            yield
        finally:
            self._is_calling = False

    def end(self) -> None:
        """Leave torch as it was; the next one may begin."""
        if self._is_over:
            return
        self._is_over = True
        for name, (inner, outer) in self._wrapped.items():
            if getattr(self._module, name) is outer:  # else another one wraps it: it does nothing
                setattr(self._module, name, inner)
        _lock.release()

    def _giving_way(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(inner)
        def outer(*args: Any, **kwargs: Any) -> Any:
            is_ours = self._is_calling and self.is_of_this_thread()
            if not is_ours and not self._is_over:
                with quiet("a profiler does not give way to another", self.end):
                    self._give_way()
            return inner(*args, **kwargs)

        return outer


def is_enabled() -> bool:
    """Whether a profiler of torch runs on this thread."""
    import torch  # noqa: PLC0415 - the job has it loaded

    enabled = getattr(torch.autograd, "_profiler_enabled", None)
    return bool(enabled()) if enabled is not None else False


def _is_another_open() -> bool:
    """Whether a profiler that torch does not tell of is open: it warms up, or another thread's.

    Looks at every object that Python tracks: some tens of ms.
    """
    kind = sys.modules[_MODULE].profile
    found = gc.get_objects()
    if kind not in map(type, found):  # twice as fast as the loop below, and mostly so
        return False
    return any(
        type(each) is kind and each.entered and each.kineto_results is None for each in found
    )
