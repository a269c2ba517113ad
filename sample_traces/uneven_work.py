"""One rank has more work than its peers: more kernels in every layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Scenario, Truth, late
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path

RANK = 1


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four data-parallel ranks; rank 1 multiplies one more matrix a layer, times the severity."""
    job = Job(seed=seed, faults=Faults(extra_kernels={RANK: round(severity)}))
    saving_ns = recorded(job, folder).saving_ns
    return late(RANK, Cause.DATA_IMBALANCE, saving_ns, "load-imbalance") if severity else Truth()


SCENARIO = Scenario(id="uneven-work", title="One rank has more work", build=build)
