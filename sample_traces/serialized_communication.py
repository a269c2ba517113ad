"""Gradients are reduced on the compute stream: nothing hides the communication."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four data-parallel ranks; reductions of 8 ms times the severity, on the compute stream."""
    faults = Faults(is_serialized=True) if severity else Faults()
    gradient_ns = int(8_000_000 * (severity or 1))
    steps = recorded(Job(seed=seed, gradient_ns=gradient_ns, faults=faults), folder)
    if not severity:
        return Truth()
    serialized = Planted(
        id="serialized-communication", cause=Cause.SERIALIZED_STREAMS, saving_ns=steps.saving_ns
    )
    return Truth(findings=(serialized,))


SCENARIO = Scenario(
    id="serialized-communication", title="Communication waits in the compute stream", build=build
)
