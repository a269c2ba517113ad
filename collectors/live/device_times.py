"""How long a step and its parts take on the device, from pairs of events that nothing waits for.

An event lies in the current stream, and the time of a pair is from when the device comes to the one
until it comes to the other: what it idles in between counts. The host is ahead of the device, so
that a step is read when a later one ends. Nothing of torch is imported, no device is initialised,
and no event is recorded or asked for while a graph is captured.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

log = logging.getLogger(__name__)
T = TypeVar("T")
EVERY = 11
"""One of so many steps has its parts timed, each has its whole.

By estimate recording an event takes the training thread 3 µs, a pair with what asks for it and
reads it 10 µs. The 50 pairs of 24 calls of a model are 500 µs, so 45 µs a step, and 10 µs for the
whole: with the 0.41 ms of all else a step stays below 0.5 ms. A prime, since gradients accumulated
over 2, 5 or 10 steps would else show the same one of them for ever.
"""
MAX_EVENTS = 128
"""Of one step; spans that begin after so many are not timed."""
MAX_HELD = 16
"""Steps that wait for their events. Of a device that is further behind nothing is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceStep:
    """What a device took for a step, and for the spans of its parts where they were timed."""

    step: int
    dur_ns: int
    parts_ns: dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class _Device:
    """What is used of torch's interface of a device."""

    event: Callable[[], Any]
    is_capturing: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class _Span:
    part: str
    begin: Any
    end: Any


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """A step that has ended on the host: all its events, in the order recorded."""

    step: int
    whole: _Span
    spans: list[_Span]
    events: list[Any]

    def is_done(self) -> bool:
        """Whether the device has come past all of it; where it has not, the last tells at once."""
        return all(event.query() for event in reversed(self.events))


class DeviceTimes:
    """Times spans of the training thread on its device. Whatever torch raises ends it for good."""

    def __init__(self) -> None:
        """Off, until `find` has found a device."""
        self._device: _Device | None = None
        self._is_over = False
        self._has_parts = False
        self._n_steps = 0
        self._whole: Any = None
        self._spans: list[_Span] = []
        self._events: list[Any] = []
        self._held: deque[_Held] = deque()
        self._free: list[Any] = []

    def find(self) -> None:
        """Begin with the next step if the job has initialised a device by now."""
        torch = sys.modules.get("torch")
        if self._device is None and not self._is_over and torch is not None:
            self._device = self._tried(self._found, torch)

    def begin(self) -> Any:
        """Mark where a span begins, for its `end`; null where it is not timed."""
        if not self._has_parts or len(self._events) >= MAX_EVENTS:
            return None
        return self._tried(self._recorded)

    def end(self, part: str, begin: Any) -> None:
        """Mark where the span ends that began there."""
        if begin is not None and (end := self._tried(self._recorded)) is not None:
            self._spans.append(_Span(part, begin, end))

    def end_step(self, step: int) -> DeviceStep | None:
        """The step has ended on the host: gives one that has ended on the device, if there is."""
        return None if self._device is None else self._tried(self._turned, step)

    def stop(self) -> None:
        """Forget all events."""
        self._is_over, self._has_parts = True, False
        self._device = self._whole = None
        self._held.clear()
        self._spans, self._events, self._free = [], [], []

    def _found(self, torch: Any) -> _Device | None:
        accelerator = torch.accelerator.current_accelerator()
        if accelerator is None:  # torch is built for the CPU alone
            self._is_over = True
            return None
        module = torch.get_device_module(accelerator)
        if not module.is_initialized():
            return None
        return _Device(
            event=lambda: torch.Event(accelerator, enable_timing=True),
            is_capturing=getattr(module, "is_current_stream_capturing", lambda: False),
        )

    def _turned(self, step: int) -> DeviceStep | None:
        whole, spans, events = self._whole, self._spans, self._events
        if whole is not None and (end := self._recorded()) is not None:
            self._held.append(_Held(step, _Span("", whole, end), spans, events))
        else:
            self._free += events
        if len(self._held) > MAX_HELD:
            self._free += self._held.popleft().events
        self._spans, self._events = [], []
        read = self._read()
        self._n_steps += 1
        self._has_parts = self._n_steps % EVERY == 0
        self._whole = self._recorded()
        return read

    def _recorded(self) -> Any:
        """An event at this place in the current stream; null if it is being captured."""
        if self._device is None or self._device.is_capturing():
            return None
        event = self._free.pop() if self._free else self._device.event()
        event.record()
        self._events.append(event)
        return event

    def _read(self) -> DeviceStep | None:
        """The first step that is done, which may have been done before an earlier one."""
        if self._device is None or self._device.is_capturing():
            return None
        held = next((each for each in self._held if each.is_done()), None)
        if held is None:
            return None
        self._held.remove(held)
        self._free += held.events
        parts_ns: dict[str, list[int]] = {}
        for span in held.spans:
            parts_ns.setdefault(span.part, []).append(_dur_ns(span))
        return DeviceStep(step=held.step, dur_ns=_dur_ns(held.whole), parts_ns=parts_ns)

    def _tried(self, call: Callable[..., T], *arguments: Any) -> T | None:
        """What the call gives; where it raises, the loop goes on with the times of the host."""
        try:
            return call(*arguments)
        except Exception:
            log.debug("steps are not timed on the device", exc_info=True)
            self.stop()
            return None


def _dur_ns(span: _Span) -> int:
    """Of a pair that is done; torch gives ms."""
    dur_ms: float = span.begin.elapsed_time(span.end)
    return max(round(dur_ms * 1e6), 0)
