"""Gradients outlast the backward pass: some of the communication is hidden, the rest lies bare."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Job
from tracekit.sample_traces.simulator.recorded import gained_ns, recorded

if TYPE_CHECKING:
    from pathlib import Path


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four data-parallel ranks; reductions of 1.5 ms, of 24 ms more times the severity.

    The truth is the same job with reductions that take no time.
    """
    job = Job(seed=seed, gradient_ns=int(1_500_000 + 24_000_000 * severity))
    recorded(job, folder)
    if not severity:
        return Truth()
    exposed = Planted(
        id="exposed-communication",
        cause=Cause.EXPOSED_COMMUNICATION,
        saving_ns=gained_ns(job, replace(job, gradient_ns=0)),
    )
    return Truth(findings=(exposed,))


SCENARIO = Scenario(
    id="mixed-overlap", title="Part of the communication outlasts the compute", build=build
)
