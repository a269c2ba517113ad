"""The heap of one rank grows, and its collections of garbage with it: later with every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path

RANK = 1


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four ranks, nine steps; rank 1 collects for 4 ms × severity more in each step."""
    plain = Job(n_steps=9, seed=seed)
    collection_ns = {
        (RANK, step): 100_000 + int(4_000_000 * severity * number)
        for number, step in enumerate(plain.steps)
    }
    job = Job(n_steps=9, seed=seed, faults=Faults(collection_ns=collection_ns))
    saving_ns = recorded(job, folder).saving_ns
    if not severity:
        return Truth()
    cause = Cause.GARBAGE_COLLECTION
    return Truth(
        findings=tuple(
            Planted(id=name, cause=cause, ranks=(RANK,), saving_ns=saving_ns)
            for name in ("straggler-rank", "garbage-collection")
        )
    )


SCENARIO = Scenario(
    id="growing-collections", title="Collections of one rank grow with every step", build=build
)
