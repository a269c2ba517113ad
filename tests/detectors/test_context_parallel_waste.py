"""`context-parallel-waste`, by hand: a ring of two ranks, steps of 1,000 µs."""

from __future__ import annotations

import pytest

from tracekit.findings import Cause, Status

NAME = "context-parallel-waste"
STEP = 1_000


@pytest.fixture
def ring(make_run, runs):
    """A run in which each rank sends the other one message of `transfer` µs a step.

    Attention of `attention` µs runs beside it from the same start, and 300 µs of products before.
    """

    def made(transfer, attention, *, description="CONTEXT_PARALLEL_GROUP"):
        traces = {rank: runs.Trace() for rank in (0, 1)}
        for number in range(5):
            at = STEP * number
            for rank, trace in traces.items():
                trace.step(number, at, STEP).kernel(at, 300, launched=at)
                for operation, stream in (("send", 36), ("recv", 37)):
                    peer = "destination_rank" if operation == "send" else "source_rank"
                    trace.collective(
                        at + 310,
                        transfer,
                        operation,
                        launched=at + 2,
                        stream=stream,
                        group="cp0",
                        members=[0, 1],
                        group_description=description,
                        bytes_in=1 << 20,
                        **{peer: 1 - rank},
                    )
                trace.kernel(at + 310, attention, "flash_fwd_kernel", launched=at + 3)
        return make_run(traces)

    return made


def test_a_ring_that_takes_longer_than_attention(ring, finding_of):
    found = finding_of(NAME, ring(200, 50))
    assert (found.status, found.cause) == (Status.FOUND, Cause.EXPOSED_COMMUNICATION)
    assert found.measured.value == pytest.approx(0.15)  # 200 µs less 50 hidden, of 1,000
    assert found.saving.per_step_ns.high == pytest.approx(150_000)
    assert found.groups == ("cp0 (2 ranks: 0–1)",)
    assert found.title == "Context parallel exchange shows for 150 µs of each step"
    assert found.confidence.reason == "200 µs of transfer against 50 µs of attention a step"
    ((group, operation, *numbers),) = found.evidence[0].rows
    assert (group, operation) == (found.groups[0], "recv")
    assert numbers == [1.0, 200_000.0, 200_000.0, 150_000.0]


def test_attention_that_hides_the_ring_is_well(ring, finding_of):
    found = finding_of(NAME, ring(200, 250))
    assert (found.status, found.measured.value) == (Status.CLEAR, 0.0)


def test_a_fiftieth_of_the_step_is_the_limit(ring, finding_of):
    assert finding_of(NAME, ring(119, 100)).status is Status.CLEAR
    assert finding_of(NAME, ring(121, 100)).status is Status.FOUND


def test_other_messages_are_a_pipelines(ring, finding_of):
    found = finding_of(NAME, ring(200, 50, description="PIPELINE_MODEL_PARALLEL"))
    assert found.status is Status.SKIPPED
    assert "no group serves context parallelism" in found.why
