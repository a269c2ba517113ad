"""A spare host took the place of one that failed: groups that hold it lose bandwidth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path

N_PER_HOST = 3
SPARE, ITS_RANKS, ITS_GROUPS = "spare-9", (9, 10, 11), ("dp0.1", "dp1.1", "dp2.1")
ON_BOTH = (6, 7, 8, *ITS_RANKS)
"""Each of these groups holds two hosts, so that either may be the slow one."""


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four nodes of three ranks, tensor parallel inside; the last one is the spare."""
    factor = 1 + 3 * severity
    job = Job(
        n_dp=2,
        n_tp=N_PER_HOST,
        n_pp=2,
        n_micro_batches=4,
        gradient_ns=6_000_000,
        seed=seed,
        faults=Faults(group_factor=dict.fromkeys(ITS_GROUPS, factor)) if severity else Faults(),
    )
    hosts = {rank: f"node-{rank // N_PER_HOST}" for rank in range(job.world_size)}
    hosts |= dict.fromkeys(ITS_RANKS, SPARE)
    saving_ns = recorded(job, folder, hosts=hosts).saving_ns
    if not severity:
        return Truth()
    return Truth(
        findings=(
            Planted(id="slow-group", cause=Cause.SLOW_GROUP, ranks=ON_BOTH, saving_ns=saving_ns),
        )
    )


SCENARIO = Scenario(id="spare-host", title="Groups that hold a spare host are slow", build=build)
