"""One device computes more slowly than its peers: all its kernels take longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Scenario, Truth, late
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path

RANK = 2


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four data-parallel ranks; rank 2 is slower by 30 % times the severity."""
    job = Job(seed=seed, faults=Faults(compute_factor={RANK: 1 + 0.3 * severity}))
    saving_ns = recorded(job, folder).saving_ns
    return late(RANK, Cause.SLOW_DEVICE, saving_ns, "load-imbalance") if severity else Truth()


SCENARIO = Scenario(id="slow-device", title="One device computes slowly", build=build)
