"""A healthy run: data, tensor and pipeline parallel, on hosts whose clocks differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.sample_traces import Scenario, Truth
from tracekit.sample_traces.simulator.job import Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Eight ranks, 2 × 2 × 2; the second host's clock is ahead by 3 ms times the severity."""
    job = Job(n_dp=2, n_tp=2, n_pp=2, n_micro_batches=8, seed=seed)
    ahead_ns = int(3_000_000 * severity)
    recorded(job, folder, offset_ns=dict.fromkeys(range(4, 8), ahead_ns))
    return Truth()


SCENARIO = Scenario(id="healthy-3d", title="A healthy run in three dimensions", build=build)
