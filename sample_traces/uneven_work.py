"""One rank has more work than its peers: more kernels in every layer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.recorded import recorded
from tracekit.sample_traces.simulator.training import Faults, Job

if TYPE_CHECKING:
    from pathlib import Path

RANK = 1


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four data-parallel ranks; rank 1 multiplies one more matrix a layer, times the severity."""
    faults = Faults(extra_kernels={RANK: round(severity)}) if severity else Faults()
    steps = recorded(Job(seed=seed, faults=faults), folder)
    if not severity:
        return Truth()
    late = Planted(
        id="straggler-rank",
        cause=Cause.DATA_IMBALANCE,
        ranks=(RANK,),
        saving_ns=steps.saving_ns,
    )
    return Truth(findings=(late, replace(late, id="load-imbalance", saving_ns=None)))


SCENARIO = Scenario(id="uneven-work", title="One rank has more work", build=build)
