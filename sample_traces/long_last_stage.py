"""The last stage of a pipeline has more to do: its layers and the head of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four stages, two ranks each, eight micro-batches; the last has one more product a layer."""
    extra = {6: round(severity), 7: round(severity)}
    faults = Faults(extra_kernels=extra)
    job = Job(n_dp=2, n_pp=4, n_micro_batches=8, seed=seed, faults=faults)
    saving_ns = recorded(job, folder).saving_ns
    if not severity:
        return Truth()
    return Truth(
        findings=tuple(
            Planted(id=name, cause=Cause.STAGE_IMBALANCE, ranks=(6, 7), saving_ns=saving_ns)
            for name in ("stage-imbalance", "straggler-rank")
        )
    )


SCENARIO = Scenario(id="long-last-stage", title="The last stage is the longest", build=build)
