"""One rank waits for its data loader at the start of every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Scenario, Truth, late
from tracekit.sample_traces.simulator.job import Faults, Job, each_step
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path

RANK = 1


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four data-parallel ranks; rank 1 loads 15 ms times the severity longer than the others."""
    job = Job(seed=seed, faults=Faults(loader_ns=each_step(RANK, 15_000_000 * severity)))
    saving_ns = recorded(job, folder).saving_ns
    return late(RANK, Cause.INPUT_PIPELINE, saving_ns, "input-stall") if severity else Truth()


SCENARIO = Scenario(id="slow-input", title="One rank waits for its data loader", build=build)
