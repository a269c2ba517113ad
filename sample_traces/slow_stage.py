"""A pipeline of single ranks: one stage computes slowly, and no collective tells who is late."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path

RANK = 2


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four stages of one rank, eight micro-batches; the third is slower by 50 % × severity."""
    faults = Faults(compute_factor={RANK: 1 + 0.5 * severity})
    job = Job(n_dp=1, n_pp=4, n_micro_batches=8, seed=seed, faults=faults)
    saving_ns = recorded(job, folder).saving_ns
    if not severity:
        return Truth()
    return Truth(
        findings=tuple(
            Planted(id=name, cause=Cause.SLOW_DEVICE, ranks=(RANK,), saving_ns=saving_ns)
            for name in ("straggler-rank", "stage-imbalance")
        ),
        skipped=("load-imbalance",),
    )


SCENARIO = Scenario(
    id="slow-stage", title="A slow stage of a pipeline of single ranks", build=build
)
