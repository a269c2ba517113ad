"""Every rank waits for its data loader: nobody makes the others wait, all devices are idle.

The loss is read in each step, which drains the queue; it is the loading that takes long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four data-parallel ranks; each loads 15 ms times the severity longer than is healthy."""
    plain = Job(seed=seed)
    load_ns = {
        (rank, step): int(15_000_000 * severity)
        for rank in range(plain.world_size)
        for step in plain.steps
    }
    steps = recorded(Job(seed=seed, faults=Faults(loader_ns=load_ns)), folder)
    if not severity:
        return Truth()
    return Truth(
        findings=(
            Planted(
                id="input-stall",
                cause=Cause.INPUT_PIPELINE,
                ranks=tuple(range(plain.world_size)),
                saving_ns=steps.saving_ns,
            ),
        )
    )


SCENARIO = Scenario(id="starved-devices", title="All ranks wait for their input", build=build)
