"""Ranks take half a minute to find each other before the first step: a slow bootstrap."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Job
from tracekit.sample_traces.simulator.nccl_log import Setup, write_log
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four data-parallel ranks on two nodes; NCCL's log lies beside their traces."""
    recorded(Job(seed=seed), folder)
    init_s = {"bootstrap": 0.2 + 30 * severity, "topo": 0.4}
    write_log(folder / "job.log", Setup(world_size=4, n_local=2, init_s=init_s))
    if not severity:
        return Truth()
    cause = Cause.TOPOLOGY_SETTING
    return Truth(findings=(Planted(id="slow-communicator-init", cause=cause, is_note=True),))


SCENARIO = Scenario(id="slow-rendezvous", title="Making communicators takes long", build=build)
