"""One slow device of the second pipeline stage: its peers wait for it, and so does the first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth, late
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path

RANK = 4


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Eight ranks, 4 × 2 stages, four micro-batches; rank 4 is slower by 40 % times the severity.

    Rank 0 feeds it and waits for its gradients, so it comes late to its peers without any fault.
    """
    faults = Faults(compute_factor={RANK: 1 + 0.4 * severity})
    job = Job(n_pp=2, n_micro_batches=4, seed=seed, faults=faults)
    saving_ns = recorded(job, folder).saving_ns
    if not severity:
        return Truth()
    truth = late(RANK, Cause.SLOW_DEVICE, saving_ns, "load-imbalance")
    note = Planted(id="late-sender", cause=Cause.UNKNOWN, ranks=(RANK,), is_note=True)
    return replace(truth, findings=(*truth.findings, note))


SCENARIO = Scenario(id="slow-device-in-pipeline", title="A slow device behind a stage", build=build)
