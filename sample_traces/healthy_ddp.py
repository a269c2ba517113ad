"""A healthy data-parallel run: reductions hide behind backward, ranks differ by noise alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.sample_traces import Scenario, Truth
from tracekit.sample_traces.simulator.job import Job
from tracekit.sample_traces.simulator.noise import varied
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Eight ranks; durations vary as on eight H100, the spread of kernels times the severity."""
    recorded(Job(n_dp=8, seed=seed, noise=varied(severity)), folder)
    return Truth()


SCENARIO = Scenario(id="healthy-ddp", title="A healthy data-parallel run", build=build)
