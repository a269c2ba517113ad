"""A simulated job written as traces, and what its faults cost: the same job run without them."""

from __future__ import annotations

from bisect import bisect_right
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


def gained_ns(job: Job, cured: Job) -> float:
    """What a job gains a step by becoming another one, as one that shares the same work evenly."""
    both = (mean_step_ns(simulate(programs(each))) for each in (job, cured))
    return next(both) - next(both)


def mean_step_ns(events: dict[int, list[Event]]) -> float:
    """Mean step on the devices, over ranks, without the first step and the last.

    From the first device event that one step launched to that of the next: without a
    synchronisation marks on the host run ahead of the device.
    """
    return sum(_mean_step_ns(happened) for happened in events.values()) / len(events)


def _mean_step_ns(happened: list[Event]) -> float:
    marks = sorted(
        event.start_ns
        for event in happened
        if isinstance(event.operation, Begin) and event.operation.name.startswith("ProfilerStep")
    )
    launched_ns = {event.correlation: event.start_ns for event in happened if event.stream is None}
    firsts: dict[int, int] = {}
    for event in happened:
        if event.stream is not None:
            step = bisect_right(marks, launched_ns[event.correlation]) - 1
            firsts[step] = min(firsts.get(step, event.start_ns), event.start_ns)
    starts = [firsts[step] for step in sorted(firsts) if step >= 1]
    return (starts[-1] - starts[0]) / (len(starts) - 1)
