"""Loader workers are started anew for each epoch, and its first step waits for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Faults, Job, Loader
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Two ranks, epochs of four steps; workers start in 0.2 ms and 60 ms times the severity."""
    faults = Faults(startup_ns=int(60_000_000 * severity))
    loader = Loader(load_ns=1_000_000, pin_ns=100_000, steps_per_epoch=4, startup_ns=200_000)
    job = Job(n_dp=2, n_steps=14, loader=loader, seed=seed, faults=faults)
    saving_ns = recorded(job, folder).saving_ns
    if not severity:
        return Truth()
    planted = Planted(
        id="input-stall", cause=Cause.INPUT_PIPELINE, ranks=(0, 1), saving_ns=saving_ns
    )
    return Truth(findings=(planted,), skipped=("slow-host",))


SCENARIO = Scenario(
    id="input-at-epoch-starts", title="Loader workers start anew in each epoch", build=build
)
