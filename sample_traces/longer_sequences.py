"""Another rank gets long sequences in each step: its attention takes longer, nothing else does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four ranks; attention of the one whose turn it is takes 1 + 2 × severity times as long."""
    longer = {(step % 4, step): 1 + 2 * severity for step in Job().steps}
    job = Job(seed=seed, faults=Faults(attention_factor=longer))
    saving_ns = recorded(job, folder).saving_ns
    if not severity:
        return Truth()
    cause = Cause.SEQUENCE_LENGTH_IMBALANCE
    return Truth(
        findings=(
            Planted(id="sequence-length-imbalance", cause=cause, saving_ns=saving_ns),
            Planted(id="straggler-rank", cause=cause, saving_ns=saving_ns),
            Planted(id="load-imbalance", cause=cause, saving_ns=saving_ns),
        )
    )


SCENARIO = Scenario(id="longer-sequences", title="Ranks get long sequences in turn", build=build)
