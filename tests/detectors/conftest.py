"""What tests of detectors share: jobs of equal steps, and the one finding of a detector."""

from __future__ import annotations

import pytest

from tracekit.config import Config
from tracekit.detectors import detectors, findings_of

STEP_US = 1_000


@pytest.fixture
def finding_of():
    """The one finding of a detector in a run, with limits in place of its own."""

    def find(name, run, **limits):
        (found,) = findings_of(detectors()[name], run, Config({name: limits}))
        return found

    return find


@pytest.fixture
def job(runs):
    """Steps of 1,000 µs of `work(rank, step)`: kernels (name, µs) in a row, from the step's start.

    Then all enter one collective, and leave it 40 µs before the step ends. Steps 2 to n − 1 are
    averaged: the first warms up, the last is cut.
    """

    def traces_of(work, *, ranks=range(4), n_steps=5):
        traces = {rank: runs.Trace() for rank in ranks}
        for rank, trace in traces.items():
            for step in range(1, n_steps + 1):
                at = begins = STEP_US * step
                trace.step(step, at, STEP_US)
                for number, (name, dur) in enumerate(work(rank, step)):
                    trace.kernel(begins, dur, name, launched=(at + number, 0.5))
                    begins += dur
                stays = at + STEP_US - 40 - begins
                trace.collective(begins, stays, launched=at + 100, members=list(ranks))
        return traces

    return traces_of


@pytest.fixture
def host_job(runs):
    """The same without devices: operators of the training thread, then gloo on another thread."""

    def traces_of(work, *, ranks=range(4), n_steps=5):
        traces = {rank: runs.Trace() for rank in ranks}
        for rank, trace in traces.items():
            for step in range(1, n_steps + 1):
                at = begins = STEP_US * step
                trace.step(step, at, STEP_US)
                for name, dur in work(rank, step):
                    trace.op(begins, dur, name)
                    begins += dur
                trace.gloo(begins, at + STEP_US - 40 - begins, members=list(ranks))
        return traces

    return traces_of
