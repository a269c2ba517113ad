"""The host of one rank stops in the middle of a step, and NCCL's RAS is asked twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.flight_recorder import Stops
from tracekit.sample_traces.simulator.job import Job
from tracekit.sample_traces.simulator.ras import write_answers

if TYPE_CHECKING:
    from pathlib import Path

RANK, CALL = 5, 33


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four data-parallel times two tensor-parallel ranks; `seed` chooses no more than the call."""
    stops = Stops(host_from={RANK: CALL + seed % 7}) if severity else Stops()
    write_answers(folder / "ras.json", Job(n_dp=4, n_tp=2), stops)
    only = ("ranks-behind",)
    if not severity:
        return Truth(only=only)
    planted = Planted(id="ranks-behind", cause=Cause.MISSING_CALL, ranks=(RANK,))
    return Truth(findings=(planted,), only=only)


SCENARIO = Scenario(id="uncalled-collective", title="RAS: a rank stops calling", build=build)
