"""A healthy run of experts and an interleaved pipeline, fed by loader workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.sample_traces import Scenario, Truth
from tracekit.sample_traces.simulator.job import Job, Loader
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Eight ranks, 4 × 2, two experts groups; the severity times 10 ms to load a batch."""
    job = Job(
        n_pp=2,
        n_ep=2,
        n_chunks=2,
        schedule="interleaved",
        n_micro_batches=4,
        loader=Loader(load_ns=int(10_000_000 * severity)),
        seed=seed,
    )
    recorded(job, folder)
    return Truth()


SCENARIO = Scenario(
    id="healthy-experts", title="A healthy run of experts in a pipeline", build=build
)
