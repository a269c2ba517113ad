"""Gradients are copied into a buffer for each reduction, and out of it before the update."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four ranks, four reductions a step; each copy takes 300 µs times the severity."""
    faults = Faults(bucket_copy_ns=int(300_000 * severity)) if severity else Faults()
    saving_ns = recorded(Job(gradient_ns=8_000_000, seed=seed, faults=faults), folder).saving_ns
    if not severity:
        return Truth()
    planted = Planted(id="copy-in-out", cause=Cause.COPY_IN_OUT, saving_ns=saving_ns)
    return Truth(findings=(planted,))


SCENARIO = Scenario(
    id="copied-buckets", title="Gradients are copied into and out of buckets", build=build
)
