"""NCCL_MAX_NCHANNELS was left in the environment: two channels over NVLink."""

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
    """Four data-parallel ranks of one node; NCCL's log lies beside their traces."""
    recorded(Job(seed=seed), folder)
    said = ("NCCL_MAX_NCHANNELS set by environment to 2.",) if severity else ()
    n_channels = 2 if severity else 24
    setup = Setup(world_size=4, n_local=4, n_channels=n_channels, said=said)
    write_log(folder / "job.log", setup)
    if not severity:
        return Truth()
    ranks = (0, 1, 2, 3)
    planted = Planted(id="nccl-limits", cause=Cause.TOPOLOGY_SETTING, ranks=ranks, is_note=True)
    return Truth(findings=(planted,))


SCENARIO = Scenario(id="few-channels", title="NCCL is held to two channels", build=build)
