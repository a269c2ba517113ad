"""Hundreds of short kernels a layer, and a host that takes longer to launch one than it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four ranks, kernels of some 10 µs; each operator takes 25 µs times the severity longer."""
    faults = Faults(operator_ns=int(25_000 * severity))
    job = Job(
        forward_ns=320_000,
        backward_ns=640_000,
        n_pieces=8,
        call_ns=3_000,
        loader_ns=100_000,
        seed=seed,
        faults=faults,
    )
    saving_ns = recorded(job, folder).saving_ns
    if not severity:
        return Truth()
    planted = Planted(
        id="launch-bound",
        cause=Cause.LAUNCH_OVERHEAD,
        ranks=(0, 1, 2, 3),
        saving_ns=saving_ns,
    )
    return Truth(findings=(planted,))


SCENARIO = Scenario(
    id="small-kernels", title="The host launches short kernels too slowly", build=build
)
