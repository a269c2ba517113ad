"""`copy-in-out`, by hand: one reduction a step of 1,000 µs, from 400 µs on, for 100 µs."""

from __future__ import annotations

import pytest

from tracekit.findings import Cause, Status

NAME = "copy-in-out"
STEP = 1_000


@pytest.fixture
def copied(make_run, runs):
    """A run with kernels (start, µs, name) besides 300 µs of compute and the reduction."""

    def made(*kernels, copies=()):
        traces = {rank: runs.Trace() for rank in (0, 1)}
        for number in range(5):
            at = STEP * number
            for trace in traces.values():
                trace.step(number, at, STEP).kernel(at, 300, launched=at)
                trace.collective(at + 400, 100, launched=at + 2, members=[0, 1], sequence=number)
                for i, (start, dur, name) in enumerate(kernels):
                    trace.kernel(at + start, dur, name, launched=at + 3 + i, stream=7 + i % 2)
                for start, dur in copies:
                    trace.copy(at + start, dur, "DtoD", launched=at + 9)
        return make_run(traces)

    return made


def test_copies_before_and_after_a_collective(copied, finding_of):
    cat, split = "CatArrayBatchedCopy_contig<x>", "split_with_sizes_copy_out_kernel"
    found = finding_of(NAME, copied((350, 49, cat), (501, 60, split)))
    assert (found.status, found.cause) == (Status.FOUND, Cause.COPY_IN_OUT)
    assert found.measured.value == pytest.approx(0.109)  # 49 + 60 of 1,000 µs
    assert found.saving.per_step_ns.high == pytest.approx(109_000)
    assert found.title == "Copies around collectives take 109 µs of each step"
    group = "0 (2 ranks: 0–1)"
    assert found.evidence[0].rows == (
        (group, "all_reduce", "after", split, 1.0, 60_000.0),
        (group, "all_reduce", "before", cat, 1.0, 49_000.0),
    )


def test_several_copies_in_a_row_all_count(copied, finding_of):
    # chunk_cat 310–340, direct_copy 345–395: 30 + 50 µs, the first one 60 µs before the collective
    kernels = ((310, 30, "chunk_cat_cuda_kernel"), (345, 50, "direct_copy_kernel_cuda"))
    assert finding_of(NAME, copied(*kernels)).measured.value == pytest.approx(0.08)


def test_copies_of_the_driver_count(copied, finding_of):
    assert finding_of(NAME, copied(copies=[(505, 50)])).measured.value == pytest.approx(0.05)


def test_what_other_compute_hides_does_not_count(copied, finding_of):
    # the copy runs from 350 to 399, a product beside it from 340 to 390
    kernels = ((350, 49, "CatArrayBatchedCopy"), (340, 50, "gemm"))
    found = finding_of(NAME, copied(*kernels))
    assert (found.status, found.measured.value) == (Status.CLEAR, pytest.approx(0.009))


def test_a_copy_far_from_any_collective_is_none_of_its(copied, finding_of):
    found = finding_of(NAME, copied((700, 100, "CatArrayBatchedCopy")))
    assert (found.status, found.measured.value) == (Status.CLEAR, 0.0)


def test_a_fiftieth_of_the_step_is_the_limit(copied, finding_of):
    assert finding_of(NAME, copied((380, 19, "cat_copy"))).status is Status.CLEAR
    assert finding_of(NAME, copied((378, 21, "cat_copy"))).status is Status.FOUND
