"""Two of four ranks have an older GPU and the same share of the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path

RANKS = (2, 3)
OLD = "NVIDIA A100-SXM4-80GB"


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four ranks; those with the older model take 1 + severity times as long for each kernel."""
    slower = dict.fromkeys(RANKS, 1 + severity)
    job = Job(seed=seed, faults=Faults(compute_factor=slower))
    old = dict.fromkeys(RANKS, OLD) if severity else {}
    saving_ns = recorded(job, folder, gpu_models=old).saving_ns
    if not severity:
        return Truth()
    cause = Cause.HETEROGENEOUS_DEVICE
    return Truth(
        findings=(
            Planted(id="straggler-rank", cause=cause, ranks=RANKS, saving_ns=saving_ns),
            # Sharing by speed buys less than equal GPUs: the job without the fault.
            Planted(id="heterogeneous-gpus", cause=cause, ranks=RANKS),
            Planted(id="load-imbalance", cause=cause, ranks=RANKS),
        )
    )


SCENARIO = Scenario(id="mixed-gpus", title="GPUs of two models share equally", build=build)
