"""Another rank gets most images in each step: its encoder takes longer, its layers do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four ranks with an encoder of 3 ms; that of the rank whose turn it is takes longer.

    By 1 + 2 × severity times.
    """
    longer = {(step % 4, step): 1 + 2 * severity for step in Job().steps}
    job = Job(encoder_ns=3_000_000, seed=seed, faults=Faults(encoder_factor=longer))
    saving_ns = recorded(job, folder).saving_ns
    if not severity:
        return Truth()
    modality = Planted(id="modality-imbalance", cause=Cause.MODALITY_IMBALANCE, saving_ns=saving_ns)
    uneven = Planted(id="load-imbalance", cause=Cause.MODALITY_IMBALANCE, saving_ns=saving_ns)
    return Truth(findings=(modality, uneven))


SCENARIO = Scenario(id="mixed-images", title="Ranks get images in turn", build=build)
