"""One rank leaves out a collective that its peers call in every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path

RANK = 2


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four ranks; all but rank 2 reduce a count in each step, and nobody waits for it yet."""
    recorded(Job(seed=seed, faults=Faults(absent=RANK) if severity else Faults()), folder)
    if not severity:
        return Truth()
    planted = Planted(id="collective-count-mismatch", cause=Cause.MISSING_CALL, ranks=(RANK,))
    return Truth(findings=(planted,))


SCENARIO = Scenario(id="left-out-call", title="A rank leaves out a collective", build=build)
