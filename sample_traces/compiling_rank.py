"""One rank gets shapes of its own and compiles in every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Scenario, Truth, late
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path

RANK = 3


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four ranks; rank 3 compiles for 20 ms times the severity in every step."""
    plain = Job(n_steps=6, seed=seed)
    busy = ("TorchDynamo Cache Lookup: compile_inner (dynamo_compile)", int(20_000_000 * severity))
    work = {(RANK, step): busy for step in plain.steps}
    job = Job(n_steps=6, seed=seed, faults=Faults(host_work=work))
    saving_ns = recorded(job, folder).saving_ns
    return late(RANK, Cause.COMPILATION, saving_ns, "idle-gpu") if severity else Truth()


SCENARIO = Scenario(id="compiling-rank", title="One rank compiles in every step", build=build)
