"""One micro-batch of a pipeline is longer than the others, on all stages."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import gained_ns, recorded

if TYPE_CHECKING:
    from pathlib import Path


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four stages of two ranks, eight micro-batches; the fourth takes 1 + 2 × severity as long.

    The cure is the same work in micro-batches of equal length.
    """
    faults = Faults(micro_batch_factor={3: 1 + 2 * severity})
    job = Job(n_dp=2, n_pp=4, n_micro_batches=8, seed=seed, faults=faults)
    recorded(job, folder)
    if not severity:
        return Truth()
    n = job.n_micro_batches
    even = dict.fromkeys(range(n), 1 + 2 * severity / n)
    saving_ns = gained_ns(job, replace(job, faults=Faults(micro_batch_factor=even)))
    cause = Cause.MICROBATCH_IMBALANCE
    return Truth(findings=(Planted(id="microbatch-imbalance", cause=cause, saving_ns=saving_ns),))


SCENARIO = Scenario(
    id="uneven-micro-batches", title="One micro-batch is longer than the others", build=build
)
