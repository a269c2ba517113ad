"""Python collects garbage on another rank in each step, and the loop's hook marks it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Eight ranks; the one whose turn it is collects for 30 ms times the severity, else 0.2 ms."""
    plain = Job(n_dp=8, seed=seed)
    collection_ns = {
        (3 * step % 8, step): 200_000 + int(30_000_000 * severity) for step in plain.steps
    }
    job = Job(n_dp=8, seed=seed, faults=Faults(collection_ns=collection_ns))
    saving_ns = recorded(job, folder).saving_ns
    if not severity:
        return Truth()
    cause = Cause.GARBAGE_COLLECTION
    return Truth(
        findings=(
            Planted(id="garbage-collection", cause=cause, saving_ns=saving_ns),
            Planted(id="straggler-rank", cause=cause, saving_ns=saving_ns),
        )
    )


SCENARIO = Scenario(id="collections-in-turn", title="Ranks collect garbage in turn", build=build)
