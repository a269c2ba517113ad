"""One rank goes back to the driver for memory in every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Scenario, Truth, late
from tracekit.sample_traces.simulator.job import Faults, Job, each_step
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path

RANK = 0


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four ranks; rank 0 allocates for 8 ms times the severity a step, and frees for 4 ms."""
    allocation_ns = each_step(RANK, 8_000_000 * severity)
    job = Job(seed=seed, faults=Faults(allocation_ns=allocation_ns, is_freeing=True))
    saving_ns = recorded(job, folder).saving_ns
    return late(RANK, Cause.ALLOCATOR, saving_ns) if severity else Truth()


SCENARIO = Scenario(id="allocator-calls", title="One rank allocates in every step", build=build)
