"""Sequences are short: the ring of context parallel ranks takes longer than their attention."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Job
from tracekit.sample_traces.simulator.recorded import gained_ns, recorded

if TYPE_CHECKING:
    from pathlib import Path

LONG_NS, SHORT_NS = 200_000, 30_000


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Rings of four ranks; attention of a chunk takes 200 µs, less the more severe."""
    chunk_ns = int(LONG_NS - (LONG_NS - SHORT_NS) * min(severity, 1.0))
    job = Job(n_cp=4, chunk_ns=chunk_ns, seed=seed)
    recorded(job, folder)
    if not severity:
        return Truth()
    planted = Planted(
        id="context-parallel-waste",
        cause=Cause.EXPOSED_COMMUNICATION,
        saving_ns=gained_ns(job, replace(job, ring_ns=0)),
    )
    return Truth(findings=(planted,))


SCENARIO = Scenario(
    id="context-parallel-short", title="Rings of short sequences are not hidden", build=build
)
