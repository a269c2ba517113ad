"""One rank waits for its data loader at the start of every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.recorded import recorded
from tracekit.sample_traces.simulator.training import Faults, Job

if TYPE_CHECKING:
    from pathlib import Path

RANK = 1


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four data-parallel ranks; rank 1 loads 15 ms times the severity longer than the others."""
    job = Job(seed=seed)
    steps_of_job = range(job.first_step, job.first_step + job.n_steps)
    load_ns = {(RANK, step): int(15_000_000 * severity) for step in steps_of_job}
    faults = Faults(loader_ns=load_ns) if severity else Faults()
    steps = recorded(Job(seed=seed, faults=faults), folder)
    if not severity:
        return Truth()
    return Truth(
        findings=(
            Planted(
                id="straggler-rank",
                cause=Cause.INPUT_PIPELINE,
                ranks=(RANK,),
                saving_ns=steps.saving_ns,
            ),
        )
    )


SCENARIO = Scenario(id="slow-input", title="One rank waits for its data loader", build=build)
