"""Another rank pauses in each step, in no operator: nobody is slow, and all wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Eight ranks; the one whose turn it is pauses for 30 ms times the severity."""
    plain = Job(n_dp=8, seed=seed)
    pause_ns = {(3 * step % 8, step): int(30_000_000 * severity) for step in plain.steps}
    job = Job(n_dp=8, seed=seed, faults=Faults(pause_ns=pause_ns))
    steps = recorded(job, folder)
    if not severity:
        return Truth()
    found = ("straggler-rank", "host-pause")
    return Truth(
        findings=tuple(
            Planted(id=name, cause=Cause.HOST_PAUSE, saving_ns=steps.saving_ns) for name in found
        )
    )


SCENARIO = Scenario(id="rotating-pauses", title="Ranks pause in turn", build=build)
