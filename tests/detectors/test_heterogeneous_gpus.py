"""`heterogeneous-gpus`: ratios of the same kernels and shares by speed; steps of 1,000 µs."""

from __future__ import annotations

import pytest

from tracekit.findings import Cause, Level, Status

NAME = "heterogeneous-gpus"


@pytest.fixture
def mixed(job):
    """Ranks with `us[rank]` of one kernel a step on a GPU of `models[rank]`."""

    def traces_of(us, models, *, kernel="gemm"):
        traces = job(lambda rank, _step: [(kernel, us[rank])], ranks=us)
        for rank, model in models.items():
            trace = traces[rank]
            trace.rows["ranks"].append({"device": 0, "gpu_model": model, "is_used": True})
        return traces

    return traces_of


OLD = {0: 400, 1: 400, 2: 400, 3: 600}
MODELS = {0: "H100", 1: "H100", 2: "H100", 3: "A100"}


def test_the_slow_model_with_exact_ratio_and_saving(make_run, mixed, finding_of):
    found = finding_of(NAME, make_run(mixed(OLD, MODELS)))
    assert (found.status, found.cause) == (Status.FOUND, Cause.HETEROGENEOUS_DEVICE)
    assert (found.subject, found.ranks, found.scope.victims) == ("A100", (3,), (0, 1, 2))
    assert found.title == "A100 runs the same kernels 50.0 % longer than H100"
    assert found.measured.value == pytest.approx(0.15)  # 600 less 450 µs
    # speeds 1, 1, 1 and 2/3: the work of 4 · 400 µs takes 1,600 / 3.667 = 436.4 of 600 µs
    assert found.saving.per_step_ns.high == pytest.approx(600_000 - 1_600_000 / (3 + 2 / 3))
    assert found.saving.per_step_ns.low == found.saving.per_step_ns.high  # the others wait 200
    slow, fast = found.evidence[0].rows
    assert slow == ("A100", "3", 600_000, 1.5, pytest.approx(2 / 11))
    assert fast == ("H100", "0, 1, 2", 400_000, 1.0, pytest.approx(3 / 11))


@pytest.mark.parametrize(("us", "is_found"), [(441, True), (439, False)])
def test_how_much_slower_from_both_sides(make_run, mixed, finding_of, us, is_found):
    # 10.25 % and 9.75 % longer; the mean rank computes 30 µs less, the limit of the step is 20
    found = finding_of(NAME, make_run(mixed(OLD | {3: us}, MODELS)))
    assert (found.status is Status.FOUND) == is_found


@pytest.mark.parametrize(("us", "is_found"), [(127, True), (126, False)])
def test_the_share_of_the_step_from_both_sides(make_run, mixed, finding_of, us, is_found):
    # three quarters of 27 µs are 20.25, of 26 they are 19.5; the limit is 20
    found = finding_of(NAME, make_run(mixed({0: 100, 1: 100, 2: 100, 3: us}, MODELS)))
    assert (found.status is Status.FOUND) == is_found
    assert found.measured.value == pytest.approx(0.75 * (us - 100) / 1_000)


def test_more_work_of_one_model_makes_it_no_slower(make_run, job, finding_of):
    def work(rank, _step):
        return [("gemm", 100)] * (6 if rank == 3 else 4)

    traces = job(work)
    for rank, model in MODELS.items():
        traces[rank].rows["ranks"].append({"device": 0, "gpu_model": model, "is_used": True})
    found = finding_of(NAME, make_run(traces))
    assert (found.status, found.measured.value) == (Status.CLEAR, pytest.approx(0.15))


def test_models_that_end_together_are_clear(make_run, mixed, finding_of):
    found = finding_of(NAME, make_run(mixed(dict.fromkeys(OLD, 400), MODELS)))
    assert (found.status, found.measured.value) == (Status.CLEAR, 0)


def test_one_model_is_clear_and_named(make_run, mixed, finding_of):
    found = finding_of(NAME, make_run(mixed(OLD, dict.fromkeys(OLD, "H100"))))
    assert (found.status, found.measured.value) == (Status.CLEAR, 0)
    assert found.title == "All GPUs are of one model: H100"
    assert found.confidence.level is Level.HIGH


def test_of_three_models_the_slowest_is_named(make_run, mixed, finding_of):
    us = {4: 300, 6: 450, 9: 600}
    found = finding_of(NAME, make_run(mixed(us, {4: "B200", 6: "H100", 9: "A100"})))
    assert (found.ranks, found.scope.victims) == ((9,), (4, 6))
    assert found.title == "A100 runs the same kernels 100.0 % longer than B200"
    # speeds 1, 2/3 and 1/2: 900 µs of work take 900 / 2.1667 = 415.4 µs
    assert found.saving.per_step_ns.high == pytest.approx(600_000 - 900_000 / (13 / 6))


def test_models_without_a_common_kernel_cannot_be_compared(make_run, job, finding_of):
    traces = job(lambda rank, _step: [("sm80_gemm" if rank == 3 else "sm90_gemm", OLD[rank])])
    for rank, model in MODELS.items():
        traces[rank].rows["ranks"].append({"device": 0, "gpu_model": model, "is_used": True})
    found = finding_of(NAME, make_run(traces))
    assert found.status is Status.SKIPPED
    assert found.why.startswith("no kernel of the averaged steps ran on all models: A100, H100")


def test_a_rank_of_unknown_model_skips_it(make_run, mixed, finding_of):
    models = {rank: model for rank, model in MODELS.items() if rank != 1}
    found = finding_of(NAME, make_run(mixed(OLD, models)))
    assert found.status is Status.SKIPPED
    assert found.why.startswith("GPU models are not recorded of all ranks. Record with")


def test_models_without_any_step_are_not_called_one(make_run, runs, finding_of):
    traces = {0: runs.Trace(), 1: runs.Trace()}
    for trace, model in zip(traces.values(), ("H100", "A100"), strict=True):
        trace.rows["ranks"].append({"device": 0, "gpu_model": model, "is_used": True})
    assert finding_of(NAME, make_run(traces)).status is Status.SKIPPED
