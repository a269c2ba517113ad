"""Every fifth reduction of gradients takes far longer: packets are lost and sent again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four data-parallel ranks; every fifth of four reductions a step takes 8 times as long."""
    faults = Faults(tail_every=5, tail_factor=1 + 7 * severity) if severity else Faults()
    job = Job(gradient_ns=4_000_000, n_steps=8, seed=seed, faults=faults)
    saving_ns = recorded(job, folder).saving_ns
    if not severity:
        return Truth()
    planted = Planted(id="network-tail", cause=Cause.NETWORK_TAIL, saving_ns=saving_ns)
    return Truth(findings=(planted,))


SCENARIO = Scenario(id="lossy-network", title="Some collectives take far longer", build=build)
