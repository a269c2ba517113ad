"""Each gradient is reduced by itself: hundreds of small collectives, and the start of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four data-parallel ranks on a network that takes 80 µs to start; 32 tensors a layer."""
    job = Job(
        latency_ns=80_000,
        seed=seed,
        faults=Faults(n_parts=int(32 * severity)) if severity else Faults(),
    )
    saving_ns = recorded(job, folder).saving_ns
    if not severity:
        return Truth()
    small = Planted(id="small-collectives", cause=Cause.SMALL_MESSAGES, saving_ns=saving_ns)
    return Truth(findings=(small,))


SCENARIO = Scenario(
    id="unbucketed-gradients", title="Gradients are reduced one by one", build=build
)
