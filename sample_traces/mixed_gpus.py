"""Two of four ranks have an older GPU and the same share of the batch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import gained_ns, recorded

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
    speeds = [1 / job.faults.compute_factor.get(rank, 1.0) for rank in range(job.world_size)]
    by_speed = dict.fromkeys(range(job.world_size), job.world_size / sum(speeds))
    shared_ns = gained_ns(job, replace(job, faults=Faults(compute_factor=by_speed)))
    cause = Cause.HETEROGENEOUS_DEVICE
    return Truth(
        findings=(
            Planted(id="straggler-rank", cause=cause, ranks=RANKS, saving_ns=saving_ns),
            # Its cure shares the work by speed; the others would have equal GPUs.
            Planted(id="heterogeneous-gpus", cause=cause, ranks=RANKS, saving_ns=shared_ns),
            Planted(id="load-imbalance", cause=cause, ranks=RANKS, saving_ns=saving_ns),
        )
    )


SCENARIO = Scenario(id="mixed-gpus", title="GPUs of two models share equally", build=build)
