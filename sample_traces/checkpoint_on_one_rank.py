"""The first rank writes a checkpoint in every third step, and all others wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Scenario, Truth, late
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path

RANK, EVERY = 0, 3


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four ranks; rank 0 writes for 30 ms times the severity in every third step."""
    plain = Job(n_steps=12, seed=seed)
    busy = ("torch.save checkpoint_save", int(30_000_000 * severity))
    work = {(RANK, step): busy for step in plain.steps if step % EVERY == 0}
    job = Job(n_steps=12, seed=seed, faults=Faults(host_work=work))
    saving_ns = recorded(job, folder).saving_ns
    return late(RANK, Cause.CHECKPOINT, saving_ns) if severity else Truth()


SCENARIO = Scenario(
    id="checkpoint-on-one-rank", title="The first rank writes checkpoints", build=build
)
