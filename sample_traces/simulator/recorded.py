"""A simulated job written as traces, and what its faults cost: the same job run without them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tracekit.sample_traces.simulator.engine import Event, simulate
from tracekit.sample_traces.simulator.job import Faults, Job, groups
from tracekit.sample_traces.simulator.kineto_json import Recording, write_kineto
from tracekit.sample_traces.simulator.operations import Begin
from tracekit.sample_traces.simulator.training import programs

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Mean step of a job in ns, and how much of it goes with the faults."""

    step_ns: float
    saving_ns: float


def recorded(job: Job, folder: Path, **how: object) -> Steps:
    """Write the traces of a job into a folder; returns its mean step and the truth of the saving.

    Args:
        job: The job, with its faults.
        folder: Where the traces go, one file a rank; it exists.
        how: Fields of `Recording`, as clock offsets.
    """
    events = simulate(programs(job))
    recording = Recording(world_size=job.world_size, groups=groups(job), **how)  # type: ignore[arg-type]
    write_kineto(events, folder, recording)
    step_ns = mean_step_ns(events)
    healthy_ns = step_ns
    if job.faults != Faults():
        healthy_ns = mean_step_ns(simulate(programs(replace(job, faults=Faults()))))
    return Steps(step_ns=step_ns, saving_ns=step_ns - healthy_ns)


def mean_step_ns(events: dict[int, list[Event]]) -> float:
    """Mean time from one step mark to the next, over ranks, without the first step."""
    means = []
    for happened in events.values():
        starts = sorted(
            event.start_ns
            for event in happened
            if isinstance(event.operation, Begin)
            and event.operation.name.startswith("ProfilerStep")
        )
        means.append((starts[-1] - starts[1]) / (len(starts) - 2))
    return sum(means) / len(means)
