"""The breakdown of a simulated job is the simulator's own truth, to the nanosecond.

Exposed compute, overlapped, exposed communication and the rest (arXiv 2504.09307), from what the
simulator ran, by a sweep that knows nothing of tracekit.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right

import pytest

import tracekit
from tracekit.sample_traces.simulator.engine import simulate
from tracekit.sample_traces.simulator.job import Job
from tracekit.sample_traces.simulator.operations import Begin, Collective, Copy, Kernel
from tracekit.sample_traces.simulator.recorded import recorded
from tracekit.sample_traces.simulator.training import programs

MIXED = Job(gradient_ns=25_500_000, seed=1)
HIDDEN = Job(gradient_ns=1_500_000, seed=2)


def windows(events):
    """[first device event of a step, that of the next) of each whole step."""
    marks = sorted(
        e.start_ns
        for e in events
        if isinstance(e.operation, Begin) and e.operation.name.startswith("ProfilerStep")
    )
    launched = {e.correlation: e.start_ns for e in events if e.stream is None}
    firsts = {}
    for event in events:
        if event.stream is not None:
            step = bisect_right(marks, launched[event.correlation]) - 1
            firsts[step] = min(firsts.get(step, event.start_ns), event.start_ns)
    starts = [firsts[step] for step in sorted(firsts) if step >= 0]
    return list(itertools.pairwise(starts))


def four_ways(events, start, end):
    """Exposed compute, overlapped, exposed communication, rest of a window, in ns."""
    on_device = [e for e in events if e.stream is not None]
    compute = [e for e in on_device if isinstance(e.operation, Kernel)]
    communication = [e for e in on_device if isinstance(e.operation, Collective)]
    edges = sorted({start, end, *(t for e in on_device for t in (e.start_ns, e.end_ns))})
    edges = [t for t in edges if start <= t <= end]
    sums = {(True, False): 0, (True, True): 0, (False, True): 0, (False, False): 0}
    for a, z in itertools.pairwise(edges):
        runs = tuple(
            any(e.start_ns <= a and e.end_ns >= z for e in kind)
            for kind in (compute, communication)
        )
        sums[runs] += z - a
    return tuple(sums.values())


@pytest.mark.parametrize("job", [MIXED, HIDDEN], ids=["mixed", "hidden"])
def test_the_four_ways_of_each_step_are_recovered_exactly(job, tmp_path):
    recorded(job, tmp_path)
    result = tracekit.analyze(tmp_path, engine="local:1")
    happened = simulate(programs(job))
    compared = 0
    for rank, events in happened.items():
        assert any(isinstance(e.operation, Copy) for e in events)  # they belong to the rest
        found = [parts for parts in result.breakdown if parts.rank == rank and parts.is_complete]
        for parts, (start, end) in zip(found, windows(events), strict=False):
            rest = parts.exposed_copy_ns + parts.idle_ns
            ways = (
                parts.exposed_compute_ns,
                parts.overlapped_ns,
                parts.exposed_communication_ns,
                rest,
            )
            assert ways == four_ways(events, start, end)
            compared += 1
    assert compared >= 4 * (job.n_steps - 2)
