"""Activations are copied to the host beside every other reduction, which takes longer for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four ranks, eight reductions a step; every second one takes 1 + 2 × severity as long."""
    job = Job(
        n_buckets=8,
        gradient_ns=16_000_000,
        seed=seed,
        faults=Faults(copy_every=2, contention_factor=1 + 2 * severity) if severity else Faults(),
    )
    saving_ns = recorded(job, folder).saving_ns
    if not severity:
        return Truth()
    planted = Planted(id="contention", cause=Cause.CONTENTION, saving_ns=saving_ns)
    return Truth(findings=(planted,))


SCENARIO = Scenario(
    id="copies-beside-reductions", title="Copies slow every other reduction down", build=build
)
