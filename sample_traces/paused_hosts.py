"""Every host does something between steps that no operator records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four ranks; each pauses 10 ms times the severity in every step."""
    job = Job(seed=seed)
    pauses = {
        (rank, step): int(10_000_000 * severity)
        for rank in range(job.world_size)
        for step in job.steps
    }
    saving_ns = recorded(Job(seed=seed, faults=Faults(pause_ns=pauses)), folder).saving_ns
    if not severity:
        return Truth()
    planted = Planted(
        id="idle-gpu", cause=Cause.HOST_OTHER, ranks=(0, 1, 2, 3), saving_ns=saving_ns
    )
    return Truth(findings=(planted,))


SCENARIO = Scenario(id="paused-hosts", title="All hosts pause between steps", build=build)
