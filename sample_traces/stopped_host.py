"""The host of one rank stops in the middle of a step: all others come to wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import OF_DUMPS, Planted, Scenario, Truth
from tracekit.sample_traces.simulator.flight_recorder import Stops, write_dumps
from tracekit.sample_traces.simulator.job import Job

if TYPE_CHECKING:
    from pathlib import Path

RANK, CALL = 5, 33


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four data-parallel times two tensor-parallel ranks, with dumps of their flight recorders."""
    stops = Stops(host_from={RANK: CALL}) if severity else Stops()
    write_dumps(folder, Job(n_dp=4, n_tp=2), stops, seed)
    if not severity:
        return Truth(only=OF_DUMPS)
    planted = Planted(id="collective-hang", cause=Cause.MISSING_CALL, ranks=(RANK,))
    return Truth(findings=(planted,), only=OF_DUMPS)


SCENARIO = Scenario(id="stopped-host", title="A rank stops calling", build=build)
