"""Sizes of a sampled graph are read back before each launch burst (ZeroGNN, arXiv 2605.29346)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four ranks, 16 layers of 16 kernels of some 10 µs; the host reads sizes before each layer.

    Each read is a small copy from the device, a synchronisation and an allocation: the severity
    times two reads a layer. Without them the host launches ahead.
    """
    faults = Faults(n_metadata_syncs=math.ceil(2 * severity))
    job = Job(
        n_layers=16,
        forward_ns=200_000,
        backward_ns=400_000,
        n_pieces=4,
        loader_ns=100_000,
        seed=seed,
        faults=faults,
    )
    saving_ns = recorded(job, folder).saving_ns
    if not severity:
        return Truth()
    planted = Planted(
        id="host-sync", cause=Cause.HOST_SYNC, ranks=(0, 1, 2, 3), saving_ns=saving_ns
    )
    return Truth(findings=(planted,))


SCENARIO = Scenario(
    id="gnn-metadata-sync", title="Metadata is read back before each launch burst", build=build
)
