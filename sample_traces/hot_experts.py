"""In every layer another rank's experts get most tokens, so that totals of the ranks look even."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four expert ranks, eight layers; the hot one gets 1 + severity times an even share."""
    job = Job(n_ep=4, seed=seed, faults=Faults(hot_expert_factor=1 + severity))
    saving_ns = recorded(job, folder).saving_ns
    if not severity:
        return Truth()
    cause = Cause.EXPERT_IMBALANCE
    return Truth(
        findings=(
            Planted(id="expert-imbalance", cause=cause, saving_ns=saving_ns),
            # Ranks that take the median of a layer: less than an even share of its tokens.
            Planted(id="straggler-rank", cause=cause),
        )
    )


SCENARIO = Scenario(id="hot-experts", title="Other experts are hot in every layer", build=build)
