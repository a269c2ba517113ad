"""The host of one rank launches more slowly than its peers: its small kernels starve."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth, late
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path

RANK = 3


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four ranks with small kernels; calls of rank 3 take 1 + 5 × severity times as long."""
    job = Job(
        forward_ns=60_000,
        backward_ns=120_000,
        gradient_ns=200_000,
        loader_ns=50_000,
        call_ns=10_000,
        seed=seed,
        faults=Faults(call_factor={RANK: 1 + 5 * severity}),
    )
    saving_ns = recorded(job, folder).saving_ns
    if not severity:
        return Truth()
    idle = Planted(id="idle-gpu", cause=Cause.LAUNCH_OVERHEAD, ranks=(RANK,))
    return Truth(findings=(*late(RANK, Cause.SLOW_HOST, saving_ns, "slow-host").findings, idle))


SCENARIO = Scenario(id="slow-host", title="One host launches slowly", build=build)
