"""Gradients are reduced after every micro-batch: accumulation without `no_sync`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four data-parallel ranks, four micro-batches; reductions of 20 ms times the severity."""
    job = Job(
        n_micro_batches=4,
        n_layers=4,
        gradient_ns=int(20_000_000 * severity) or 4_000_000,
        seed=seed,
        faults=Faults(is_synced_each=True) if severity else Faults(),
    )
    saving_ns = recorded(job, folder).saving_ns
    if not severity:
        return Truth()
    repeated = Planted(id="redundant-gradient-sync", cause=Cause.REPEATED_WORK, saving_ns=saving_ns)
    return Truth(findings=(repeated,))


SCENARIO = Scenario(
    id="synced-micro-batches", title="Every micro-batch reduces gradients", build=build
)
