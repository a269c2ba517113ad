"""One device of a data × tensor × pipeline grid is slow: its tensor peer is late too, by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Scenario, Truth, late
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path

RANK = 3


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Eight ranks, 2 × 2 × 2; rank 3 is slower by 30 % times the severity."""
    faults = Faults(compute_factor={RANK: 1 + 0.3 * severity})
    job = Job(n_dp=2, n_tp=2, n_pp=2, n_micro_batches=4, seed=seed, faults=faults)
    saving_ns = recorded(job, folder).saving_ns
    return late(RANK, Cause.SLOW_DEVICE, saving_ns, "load-imbalance") if severity else Truth()


SCENARIO = Scenario(id="slow-device-in-grid", title="A slow device and its peers", build=build)
