"""`redundant-gradient-sync`, by hand: two ranks, steps of 2,000 µs of two micro-batches."""

from __future__ import annotations

import pytest

from tracekit.findings import Cause, Change, Status

NAME = "redundant-gradient-sync"
STEP, HALF = 2_000, 1_000
MAIN, AUTOGRAD = 1, 2
MB = 1 << 20


@pytest.fixture
def accumulated(make_run, runs):
    """A run whose micro-batches compute 300 µs forward, 400 backward, then reduce for 100.

    `reduced(micro_batch)` are the bytes of the reductions of a micro-batch.
    """

    def made(reduced, *, operation="all_reduce", n_micro_batches=2, description="DATA_PARALLEL"):
        traces = {rank: runs.Trace() for rank in (0, 1)}
        sequence = 0
        for step in range(5):
            for number in range(n_micro_batches):
                at = STEP * step + HALF * number
                sizes = reduced(number)
                for trace in traces.values():
                    if number == 0:
                        trace.step(step, at, STEP)
                    trace.kernel(at + 10, 300, launched=at, thread=MAIN)
                    trace.kernel(at + 312, 400, launched=at + 2, thread=AUTOGRAD)
                    for i, nbytes in enumerate(sizes):
                        trace.collective(
                            at + 715 + 101 * i,
                            100,
                            operation,
                            launched=at + 4 + 2 * i,
                            thread=AUTOGRAD,
                            enqueue_ns=1000 * (at + 4 + 2 * i),
                            members=[0, 1],
                            group_description=description,
                            sequence=sequence + i,
                            bytes_in=nbytes,
                        )
                sequence += len(sizes)
        return make_run(traces)

    return made


def test_the_same_buckets_in_each_micro_batch(accumulated, finding_of):
    found = finding_of(NAME, accumulated(lambda _: [4 * MB, MB]))
    assert (found.status, found.cause) == (Status.FOUND, Cause.REPEATED_WORK)
    assert found.measured.value == 2
    assert found.title == "Gradients are reduced 2 times a step, in each micro-batch anew"
    # the two reductions of the first micro-batch, 100 µs each, nothing runs beside them
    assert found.saving.per_step_ns.low == pytest.approx(200_000)
    assert found.evidence[0].rows == (
        ("0 (2 ranks: 0–1)", "all_reduce", 2.0, 5.0 * MB, 200_000.0, 200_000.0),
    )
    assert found.recommendation.kind is Change.CODE


def test_once_a_step_is_as_it_should_be(accumulated, finding_of):
    found = finding_of(NAME, accumulated(lambda number: [4 * MB, MB] if number else []))
    assert (found.status, found.measured.value) == (Status.CLEAR, 1)


def test_four_equal_buckets_in_the_last_of_two_micro_batches_are_no_repetition(
    accumulated, finding_of
):
    found = finding_of(NAME, accumulated(lambda number: [MB] * 2 if number else []))
    assert found.status is Status.CLEAR


def test_other_bytes_are_another_thing(accumulated, finding_of):
    found = finding_of(NAME, accumulated(lambda number: [4 * MB] if number else [MB]))
    assert found.status is Status.CLEAR


def test_a_loss_that_is_averaged_in_each_micro_batch_is_no_gradient(accumulated, finding_of):
    found = finding_of(NAME, accumulated(lambda number: [8, 4 * MB] if number else [8]))
    assert found.status is Status.CLEAR


def test_activations_of_tensor_parallel_ranks_are_no_gradients(accumulated, finding_of):
    run = accumulated(lambda _: [4 * MB], description="TENSOR_MODEL_PARALLEL_GROUP")
    assert finding_of(NAME, run).status is Status.CLEAR


def test_sharded_gradients_are_reduced_and_scattered(accumulated, finding_of):
    found = finding_of(NAME, accumulated(lambda _: [4 * MB], operation="reduce_scatter"))
    assert found.status is Status.FOUND
    assert "stay in memory" in found.recommendation.text


def test_one_micro_batch_cannot_repeat(accumulated, finding_of):
    found = finding_of(NAME, accumulated(lambda _: [4 * MB], n_micro_batches=1))
    assert found.status is Status.SKIPPED
