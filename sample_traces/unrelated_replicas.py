"""Replicas that work each by itself, recorded as one job: no communication in any trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.engine import simulate
from tracekit.sample_traces.simulator.job import Job
from tracekit.sample_traces.simulator.kineto_json import Recording, write_kineto
from tracekit.sample_traces.simulator.recorded import recorded
from tracekit.sample_traces.simulator.training import programs

if TYPE_CHECKING:
    from pathlib import Path

N_RANKS = 4
_SKIPPED = ("contention", "copy-in-out", "exposed-communication", "straggler-rank")


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four ranks that never meet; their healthy twin reduces gradients."""
    if not severity:
        recorded(Job(n_dp=N_RANKS, seed=seed), folder)
        return Truth()
    events = {
        rank: simulate(programs(Job(n_dp=1, seed=seed * N_RANKS + rank)))[0]
        for rank in range(N_RANKS)
    }
    write_kineto(events, folder, Recording(world_size=N_RANKS, groups=()))
    planted = Planted(
        id="no-communication-seen", cause=Cause.UNKNOWN, ranks=(0, 1, 2, 3), is_note=True
    )
    return Truth(findings=(planted,), skipped=_SKIPPED)


SCENARIO = Scenario(id="unrelated-replicas", title="Ranks that exchange nothing", build=build)
