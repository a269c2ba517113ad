"""Four loader workers are too slow together: every fourth step waits (open_clip issue 703)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Faults, Job, Loader
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Two ranks, steps of 25 ms; a batch takes 60 ms, and 80 ms times the severity more."""
    faults = Faults(load_ns=int(80_000_000 * severity))
    loader = Loader(n_workers=4, load_ns=60_000_000)
    job = Job(n_dp=2, n_steps=14, loader=loader, seed=seed, faults=faults)
    saving_ns = recorded(job, folder).saving_ns
    if not severity:
        return Truth()
    planted = Planted(
        id="input-stall", cause=Cause.INPUT_PIPELINE, ranks=(0, 1), saving_ns=saving_ns
    )
    return Truth(findings=(planted,), skipped=("slow-host",))


SCENARIO = Scenario(
    id="input-every-fourth-step",
    title="Too few loader workers: every fourth step waits",
    build=build,
)
