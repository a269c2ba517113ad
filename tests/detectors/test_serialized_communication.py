"""`serialized-communication`, by hand: two ranks, steps of 1,000 µs with three reductions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tracekit.facts import Facts
from tracekit.findings import Cause, Status

NAME = "serialized-communication"
STEP = 1_000
COMPUTE, OWN = 7, 20


@pytest.fixture
def reduced(make_run, runs):
    """A run in which four kernels of 100 µs alternate with three reductions of 80 µs.

    Everything is queued at the start of the step, but where `launched_late` the kernels behind
    reductions are launched as those end. `beside` runs compute beside each reduction.
    """

    def made(*, stream=OWN, launched_late=False, beside=False, kind="gemm", environment=None):
        traces = {rank: runs.Trace() for rank in (0, 1)}
        for step in range(5):
            for trace in traces.values():
                at = STEP * step
                trace.step(step, at, STEP)
                for number in range(4):
                    begins = at + 20 + 185 * number
                    launched = begins - 6 if launched_late else at + 2 * number
                    name = kind if number else "gemm"
                    trace.kernel(begins, 100, name, launched=launched, kind=name, stream=COMPUTE)
                    if number == 3:
                        break
                    trace.collective(
                        begins + 102,
                        80,
                        launched=at + 2 * number + 1,
                        members=[0, 1],
                        group_description="DATA_PARALLEL",
                        sequence=3 * step + number,
                        bytes_in=1 << 20,
                        stream=stream,
                    )
                    if beside:
                        trace.kernel(begins + 102, 60, launched=at + 9, stream=8)
        run = make_run(traces)
        if environment is None:
            return run
        captures = tuple(
            replace(
                capture,
                facts=Facts(
                    rank=capture.rank,
                    local_rank=capture.rank,
                    world_size=2,
                    host="a",
                    pid=1,
                    attempt=0,
                    environment=environment,
                ),
            )
            for capture in run.manifest.captures
        )
        return replace(run, manifest=replace(run.manifest, captures=captures))

    return made


def test_queued_compute_begins_as_each_reduction_ends(reduced, finding_of):
    found = finding_of(NAME, reduced())
    assert (found.status, found.cause) == (Status.FOUND, Cause.SERIALIZED_STREAMS)
    assert found.measured.value == pytest.approx(0.24)  # three times 80 of 1,000 µs
    assert found.saving.per_step_ns.high == pytest.approx(240_000)
    assert found.title == (
        "Reductions on a stream of their own hold back compute for 240 µs a step"
    )
    (row,) = found.evidence[0].rows
    assert row[3] / row[2] == 1
    assert row[4] == 0
    assert found.recommendation.commands == ("env | grep CUDA_DEVICE_MAX_CONNECTIONS",)


def test_in_the_stream_of_the_compute(reduced, finding_of):
    found = finding_of(NAME, reduced(stream=COMPUTE))
    assert found.title.startswith("Reductions in the stream of the compute")
    assert "a stream of its own" in found.recommendation.text


def test_s36_the_variable_is_named_where_the_run_holds_it(reduced, finding_of):
    found = finding_of(NAME, reduced(environment={"CUDA_DEVICE_MAX_CONNECTIONS": "1"}))
    assert found.recommendation.commands == ("unset CUDA_DEVICE_MAX_CONNECTIONS",)
    other = finding_of(NAME, reduced(environment={"CUDA_DEVICE_MAX_CONNECTIONS": "8"}))
    assert other.recommendation.commands == ("env | grep CUDA_DEVICE_MAX_CONNECTIONS",)


def test_kernels_that_are_launched_as_reductions_end_were_not_held(reduced, finding_of):
    assert finding_of(NAME, reduced(launched_late=True)).status is Status.CLEAR


def test_reductions_beside_compute_hold_nothing_back(reduced, finding_of):
    assert finding_of(NAME, reduced(beside=True)).status is Status.CLEAR


def test_the_optimizer_needs_the_gradients(reduced, finding_of):
    assert finding_of(NAME, reduced(kind="optimizer")).status is Status.CLEAR
