"""Each reduction of gradients is waited for as soon as it is launched: nothing runs beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four data-parallel ranks; reductions of 8 ms times the severity, on a stream of their own."""
    faults = Faults(is_awaited=True) if severity else Faults()
    gradient_ns = int(8_000_000 * (severity or 1))
    saving_ns = recorded(Job(seed=seed, gradient_ns=gradient_ns, faults=faults), folder).saving_ns
    if not severity:
        return Truth()
    serialized = Planted(
        id="serialized-communication", cause=Cause.SERIALIZED_STREAMS, saving_ns=saving_ns
    )
    return Truth(findings=(serialized,))


SCENARIO = Scenario(
    id="awaited-reductions", title="Every reduction is waited for at once", build=build
)
