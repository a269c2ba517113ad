"""Collectives of one data-parallel group take longer than those of its peers: a slow link."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path

GROUP, MEMBERS = "dp2.0", (2, 6)


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Two nodes of four ranks, tensor parallel inside; one of four groups across is slow."""
    factor = 1 + 3 * severity
    job = Job(
        n_dp=2,
        n_tp=4,
        gradient_ns=6_000_000,
        seed=seed,
        faults=Faults(group_factor={GROUP: factor}) if severity else Faults(),
    )
    saving_ns = recorded(job, folder).saving_ns
    if not severity:
        return Truth()
    planted = Planted(id="slow-group", cause=Cause.SLOW_GROUP, ranks=MEMBERS, saving_ns=saving_ns)
    return Truth(findings=(planted,))


SCENARIO = Scenario(id="slow-group", title="One group's collectives are slow", build=build)
