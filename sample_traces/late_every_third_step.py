"""One rank is late in every third step, when it writes something that no operator records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path

RANK, EVERY = 2, 3


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four ranks, twelve steps; rank 2 pauses for 25 ms times the severity in every third."""
    plain = Job(n_steps=12, seed=seed)
    pause_ns = {
        (RANK, step): int(25_000_000 * severity) for step in plain.steps if step % EVERY == 0
    }
    job = Job(n_steps=12, seed=seed, faults=Faults(pause_ns=pause_ns))
    saving_ns = recorded(job, folder).saving_ns
    if not severity:
        return Truth()
    late = Planted(id="straggler-rank", cause=Cause.HOST_OTHER, ranks=(RANK,), saving_ns=saving_ns)
    return Truth(findings=(late,))


SCENARIO = Scenario(
    id="late-every-third-step", title="One rank is late in every third step", build=build
)
