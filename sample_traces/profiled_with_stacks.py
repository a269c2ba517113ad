"""A healthy job recorded with stacks: the profiler makes it look launch-bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path

RECORDING_NS = 12_600
"""What recording an operator with its stack costs the host."""


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Two ranks, kernels of some 10 µs; recording costs 12.6 µs an operator times the severity."""
    faults = Faults(operator_ns=int(RECORDING_NS * severity))
    job = Job(
        n_dp=2,
        forward_ns=280_000,
        backward_ns=560_000,
        n_pieces=8,
        call_ns=3_000,
        loader_ns=100_000,
        seed=seed,
        faults=faults,
    )
    recorded(job, folder, flags=("with_stack", "record_shapes") if severity else ())
    if not severity:
        return Truth()
    planted = Planted(id="profiler-overhead", cause=Cause.PROFILER_OVERHEAD, ranks=(), is_note=True)
    return Truth(findings=(planted,), skipped=("slow-host",))


SCENARIO = Scenario(
    id="profiled-with-stacks", title="Recorded with stacks, a healthy job looks slow", build=build
)
