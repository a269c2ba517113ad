"""`small-collectives`, by hand: two ranks, steps of 2,000 µs, 20 µs to start and 1 byte per ns."""

from __future__ import annotations

import pytest

from tracekit.findings import Cause, Status

NAME = "small-collectives"
STEP, START = 2_000, 20


@pytest.fixture
def reduced(make_run, runs):
    """A run that reduces tensors of these sizes after 100 µs of compute, one by one.

    With `is_hidden` compute runs beside all of them.
    """

    def made(sizes, *, is_hidden=False, description="DATA_PARALLEL", n_steps=5):
        traces = {rank: runs.Trace() for rank in (0, 1)}
        for step in range(n_steps):
            for trace in traces.values():
                at = STEP * step
                trace.step(step, at, STEP)
                trace.kernel(at, 100, launched=at)
                begins = at + 100
                for i, nbytes in enumerate(sizes):
                    took = START + nbytes / 1000
                    trace.collective(
                        begins,
                        took,
                        launched=at + 2 + i,
                        members=[0, 1],
                        group_description=description,
                        sequence=len(sizes) * step + i,
                        bytes_in=nbytes,
                    )
                    begins += took
                if is_hidden:
                    trace.kernel(at + 100, begins - at - 100, launched=at + 2)
        return make_run(traces)

    return made


SMALL = [1_000, 2_000, 4_000, 8_000] * 4
LARGE = [200_000]


def test_sixteen_small_calls_that_one_bucket_would_hold(reduced, finding_of):
    found = finding_of(NAME, reduced(SMALL + LARGE))
    assert (found.status, found.cause) == (Status.FOUND, Cause.SMALL_MESSAGES)
    # 16 starts of 20 µs, of which one is left
    assert found.saving.per_step_ns.low == pytest.approx(15 * 20_000)
    assert found.measured.value == pytest.approx(0.15)
    assert found.title == "16 small collectives a step cost their starts: 1 would do"
    (row,) = found.evidence[0].rows
    assert row[2:] == (16, 60_000, 16 * 20_000 + 60_000, 1, pytest.approx(20_000))


def test_what_compute_hides_costs_nothing(reduced, finding_of):
    found = finding_of(NAME, reduced(SMALL + LARGE, is_hidden=True))
    assert (found.status, found.measured.value) == (Status.CLEAR, 0)


def test_large_calls_are_bound_by_their_bytes(reduced, finding_of):
    found = finding_of(NAME, reduced([100_000, 200_000, 400_000] * 2))
    assert (found.status, found.measured.value) == (Status.CLEAR, 0)


def test_a_few_small_ones_are_in_every_step(reduced, finding_of):
    assert finding_of(NAME, reduced([1_000, 4_000, 8_000, *LARGE])).measured.value == 0


def test_collectives_that_wait_for_each_other_cannot_be_merged(reduced, finding_of):
    run = reduced(SMALL + LARGE, description="TENSOR_MODEL_PARALLEL_GROUP")
    assert finding_of(NAME, run).status is Status.CLEAR


def test_one_size_tells_no_latency(reduced, finding_of):
    found = finding_of(NAME, reduced([4_000] * 16))
    assert found.status is Status.SKIPPED
    assert "no three sizes" in found.why
