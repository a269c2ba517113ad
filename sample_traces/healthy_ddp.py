"""A healthy data-parallel run: reductions hide behind backward, ranks differ by noise alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.sample_traces import Scenario, Truth
from tracekit.sample_traces.simulator.recorded import recorded
from tracekit.sample_traces.simulator.training import Job

if TYPE_CHECKING:
    from pathlib import Path


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Eight ranks; kernels vary by 2 % times the severity."""
    recorded(Job(n_dp=8, seed=seed, jitter_share=0.02 * severity), folder)
    return Truth()


SCENARIO = Scenario(id="healthy-ddp", title="A healthy data-parallel run", build=build)
