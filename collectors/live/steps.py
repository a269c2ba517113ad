"""The summary of steps of one rank, and what is timed for it, as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.collectors.live.device_times import DeviceTimes
from tracekit.collectors.live.parts import Parts
from tracekit.collectors.live.summary import StepSummary

if TYPE_CHECKING:
    from pathlib import Path


class Steps:
    """Times the parts of every step of this thread and writes one line a step."""

    def __init__(self, attempt: Path, rank: int) -> None:
        """Begin with the current step; lines go below the folder of the attempt."""
        self._summary = StepSummary(attempt / "steps" / f"rank={rank:06d}.jsonl")
        self._device = DeviceTimes()
        self._parts = Parts(self._summary, self._device)
        self._parts.start()

    def add_phase(self, name: str, dur_ns: int) -> None:
        """A phase of the step took so long; the other parts lie inside of phases."""
        self._summary.add(f"phase {name}", dur_ns)

    def end(self, step: int, dur_ns: int) -> None:
        """The step has ended."""
        self._parts.end_step()
        self._summary.end(step, dur_ns, self._device.end_step(step))

    def close(self) -> None:
        """Take all hooks away, write what is left."""
        self._parts.stop()
        self._device.stop()
        self._summary.close()
