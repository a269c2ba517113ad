"""A slow device in a trace as most are: no collective metadata, and clocks that drift apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Scenario, Truth, late
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path

RANK = 2


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four ranks; rank 2 is slower by 30 % times the severity, rank 3's clock off and drifting."""
    job = Job(seed=seed, faults=Faults(compute_factor={RANK: 1 + 0.3 * severity}))
    steps = recorded(
        job, folder, has_metadata=False, offset_ns={3: 12_000_000_000}, drift_ppm={3: 50.0}
    )
    return late(RANK, Cause.SLOW_DEVICE, steps.saving_ns, "load-imbalance") if severity else Truth()


SCENARIO = Scenario(id="poor-trace", title="A slow device in a poor trace", build=build)
