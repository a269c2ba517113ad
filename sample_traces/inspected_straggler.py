"""One device computes slowly, in a job of which NCCL Inspector alone was recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.inspector import write_inspector
from tracekit.sample_traces.simulator.job import Faults, Job

if TYPE_CHECKING:
    from pathlib import Path

RANK = 2


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four data-parallel ranks; rank 2 is slower by 30 % times the severity."""
    job = Job(seed=seed, n_steps=12, faults=Faults(compute_factor={RANK: 1 + 0.3 * severity}))
    write_inspector(job, folder)
    if not severity:
        return Truth(only=("late-in-calls",))
    planted = Planted(id="late-in-calls", cause=Cause.UNKNOWN, ranks=(RANK,))
    return Truth(findings=(planted,), only=("late-in-calls",))


SCENARIO = Scenario(id="inspected-straggler", title="NCCL Inspector saw a late rank", build=build)
