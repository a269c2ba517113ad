"""Messages between two ranks take longer than those between their peers: a slow link."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path

ENDS = (2, 4)


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Two pipelines of four stages; of the first one the middle link is slow."""
    job = Job(
        n_dp=2,
        n_pp=4,
        n_micro_batches=8,
        seed=seed,
        faults=Faults(link_factor={ENDS: 1 + 5 * severity}) if severity else Faults(),
    )
    saving_ns = recorded(job, folder).saving_ns
    if not severity:
        return Truth()
    planted = Planted(id="slow-link", cause=Cause.SLOW_LINK, ranks=ENDS, saving_ns=saving_ns)
    return Truth(findings=(planted,))


SCENARIO = Scenario(id="slow-link", title="Messages over one link are slow", build=build)
