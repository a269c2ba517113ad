"""`load-imbalance`: exact waste and saving, the limits from both sides, ranks not to compare."""

from __future__ import annotations

import pytest

from tracekit.config import Config
from tracekit.detectors import detectors, findings_of
from tracekit.findings import Cause, Level, Status


def finding_of(run, **limits):
    (found,) = findings_of(detectors()["load-imbalance"], run, Config({"load-imbalance": limits}))
    return found


def job(runs, busy, *, n_kernels=1, n_steps=5, is_marked=True):
    """Steps of 1,000 µs; each rank computes for `busy[rank]` µs, then all enter one collective."""
    traces = {rank: runs.Trace() for rank in range(len(busy))}
    for rank, trace in traces.items():
        count = n_kernels[rank] if isinstance(n_kernels, list) else n_kernels
        for step in range(1, n_steps + 1):
            at = 1000 * step
            if is_marked:
                trace.step(step, at, 1000)
            for number in range(count):
                dur = busy[rank] / count
                trace.kernel(at + number * dur, dur, launched=(at + number / 100, 0.01))
            trace.collective(
                at + busy[rank], 960 - busy[rank], launched=(at + 1, 1), members=list(traces)
            )
    return traces


def test_the_longest_rank_is_named_with_exact_waste_and_saving(make_run, runs):
    found = finding_of(make_run(job(runs, [400, 400, 400, 600])))
    # mean 450, longest 600: 1 − 450 / 600 is wasted, 150 µs a step; the others wait 200
    assert (found.status, found.ranks) == (Status.FOUND, (3,))
    assert found.measured.value == pytest.approx(0.25)
    assert found.saving.per_step_ns.high == 200_000  # the median rank has 400 of 600 µs
    assert found.saving.per_step_ns.low == 150_000
    assert found.scope.victims == (0, 1, 2)
    assert found.title == "Rank 3 computes 33.3 % longer than the mean rank"


def test_more_kernels_are_more_data_and_slower_ones_a_slow_device(make_run, runs):
    more = finding_of(make_run(job(runs, [400, 400, 400, 600], n_kernels=[4, 4, 4, 6])))
    assert more.cause is Cause.DATA_IMBALANCE
    slower = finding_of(make_run(job(runs, [400, 400, 400, 600], n_kernels=4)))
    assert slower.cause is Cause.SLOW_DEVICE


@pytest.mark.parametrize(("longest", "is_found"), [(429, True), (427, False)])
def test_the_limit_of_waste_from_both_sides(make_run, runs, longest, is_found):
    # three ranks of 400: 429 → mean 407.25, waste 5.07 %; 427 → 406.75, 4.74 %
    found = finding_of(make_run(job(runs, [400, 400, 400, longest])))
    assert (found.status is Status.FOUND) == is_found
    assert found.measured.value == pytest.approx(1 - (1200 + longest) / 4 / longest)


@pytest.mark.parametrize(("longest", "is_found"), [(128, True), (126, False)])
def test_the_limit_of_the_steps_share_from_both_sides(make_run, runs, longest, is_found):
    # 100, 100, 100 and 128: 128 − 107 = 21 µs of 1,000; with 126 it is 19.5
    found = finding_of(make_run(job(runs, [100, 100, 100, longest])))
    assert (found.status is Status.FOUND) == is_found


def test_equal_ranks_are_clear(make_run, runs):
    found = finding_of(make_run(job(runs, [400] * 4)))
    assert (found.status, found.measured.value) == (Status.CLEAR, 0)


def test_the_low_end_is_what_the_others_are_seen_to_wait(make_run, runs):
    traces = job(runs, [400, 400, 400, 600])
    for trace in traces.values():  # nobody waits: no collective at all
        trace.rows["collectives"].clear()
        trace.rows["kernels"] = [r for r in trace.rows["kernels"] if r["kind"] != "communication"]
    found = finding_of(make_run(traces))
    assert found.status is Status.FOUND
    assert (found.saving.per_step_ns.low, found.saving.share) == (0, 0)


@pytest.mark.parametrize(("n_steps", "level"), [(5, Level.MEDIUM), (2, Level.LOW)])
def test_one_step_makes_it_unsure(make_run, runs, n_steps, level):
    found = finding_of(make_run(job(runs, [400, 400, 400, 600], n_steps=n_steps)))
    assert found.confidence.level is level


def test_one_rank_is_skipped(make_run, runs):
    found = finding_of(make_run(job(runs, [400])))
    assert (found.status, found.why[:8]) == (Status.SKIPPED, "one rank")


def test_windows_that_may_hold_different_work_are_not_compared(make_run, runs):
    found = finding_of(make_run(job(runs, [400, 600], is_marked=False)))
    assert found.status is Status.SKIPPED
    assert "prof.step()" in found.why


def test_ranks_without_events_are_skipped(make_run, runs):
    found = finding_of(make_run({0: runs.Trace(), 1: runs.Trace()}))
    assert found.status is Status.SKIPPED
    assert found.why.startswith("no step holds device activity or host operators")


def test_on_a_host_thread_slower_operators_are_a_slow_host(make_run, runs):
    traces = {rank: runs.Trace() for rank in range(2)}
    for rank, trace in traces.items():
        for step in range(1, 5):
            trace.step(step, 1000 * step, 1000).op(1000 * step, 400 + 200 * rank)
    assert finding_of(make_run(traces)).cause is Cause.SLOW_HOST


def computing(job, us, **facts):
    """Steps of 1,000 µs in which rank r computes for `us(r, step)` µs, then all meet."""
    return job(lambda rank, step: [("gemm", us(rank, step))], **facts)


def test_ranks_that_take_turns_waste_as_much_and_are_all_named(make_run, job):
    run = make_run(computing(job, lambda rank, step: 600 if rank == step % 4 else 400, n_steps=6))
    found = finding_of(run)
    # totals of all ranks are equal over steps 2 to 5, yet each step takes 600 instead of 450 µs
    assert (found.ranks, found.scope.victims) == ((0, 1, 2, 3), ())
    assert found.measured.value == pytest.approx(0.25)
    assert found.title == "In each step another rank computes 33.3 % longer than the mean rank"
    assert found.saving.per_step_ns.high == pytest.approx(200_000)
    assert found.saving.per_step_ns.low == pytest.approx(150_000)


@pytest.mark.parametrize(("n_longest", "ranks"), [(5, (1,)), (4, (1, 3))])
def test_a_rank_that_is_longest_in_most_steps_is_named_alone(make_run, job, n_longest, ranks):
    # rank 1 is the longest in five of eight averaged steps (62.5 %), or four, else rank 3 is
    def us(rank, step):
        return 600 if rank == (1 if step <= 1 + n_longest else 3) else 400

    assert finding_of(make_run(computing(job, us, n_steps=10))).ranks == ranks


def with_messages(traces, *pairs):
    for rank, peer in pairs:
        for step in range(1, 6):
            place = {"destination_rank": peer, "members": None}
            traces[rank].collective(1_000 * step + 970, 5, "send", **place)
    return traces


def test_ranks_are_compared_within_their_stage(make_run, job):
    # stage 0 (ranks 2, 5) takes 300 µs, stage 1 (ranks 7, 11) 600 and 700
    us = {2: 300, 5: 300, 7: 600, 11: 700}
    traces = computing(job, lambda rank, _step: us[rank], ranks=us)
    found = finding_of(make_run(with_messages(traces, (2, 7), (5, 11)), world_size=16))
    assert (found.ranks, found.scope.victims) == ((11,), (7,))
    assert found.measured.value == pytest.approx(1 - 650 / 700)


def test_stages_that_differ_are_no_imbalance_of_ranks(make_run, job):
    us = {0: 300, 1: 300, 2: 700, 3: 700}
    traces = computing(job, lambda rank, _step: us[rank], ranks=us)
    found = finding_of(make_run(with_messages(traces, (0, 2), (1, 3))))
    assert (found.status, found.measured.value) == (Status.CLEAR, 0)


def test_a_pipeline_of_one_rank_a_stage_is_skipped(make_run, job):
    traces = computing(job, lambda rank, _step: 300 + 300 * rank, ranks=range(2))
    found = finding_of(make_run(with_messages(traces, (0, 1))))
    assert found.status is Status.SKIPPED
    assert found.why.startswith("every rank is a stage of a pipeline of its own: stage-imbalance")


@pytest.mark.parametrize(("longest", "is_found"), [(462, True), (461, False)])
def test_threads_that_stand_for_devices_may_waste_more(make_run, host_job, longest, is_found):
    # three of 400: 462 → mean 415.5, waste 10.06 %; 461 → 415.25, 9.92 %; the limit is 10 %
    run = make_run(host_job(lambda rank, _step: [("aten::mm", longest if rank == 2 else 400)]))
    found = finding_of(run)
    assert (found.status is Status.FOUND) == is_found
    assert found.limit.value == 0.1


def causes(make_run, job, work, models=None, messages=()):
    traces = job(work)
    for rank, model in (models or {}).items():
        traces[rank].rows["ranks"].append({"device": 0, "gpu_model": model, "is_used": True})
    found = finding_of(make_run(with_messages(traces, *messages)))
    assert found.status is Status.FOUND
    return found.cause


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("flash_fwd", Cause.SEQUENCE_LENGTH_IMBALANCE),
        ("moe_gemm", Cause.EXPERT_IMBALANCE),
        ("elementwise", Cause.SLOW_DEVICE),
    ],
)
def test_the_class_of_work_that_differs_alone_is_the_cause(make_run, job, name, cause):
    def work(rank, _step):
        return [("gemm", 200), (name, 400 if rank == 3 else 200)]

    assert causes(make_run, job, work) is cause


def test_a_device_slow_in_everything_is_a_slow_device(make_run, job):
    def work(rank, _step):
        us = 300 if rank == 3 else 200
        return [("gemm", us), ("flash_fwd", us), ("moe_gemm", us)]

    assert causes(make_run, job, work) is Cause.SLOW_DEVICE


def test_only_the_stage_at_fault_says_why(make_run, job):
    # 30 µs of attention in stage 1 are 6.4 % of its mean, 3.2 % of the mean of both stages
    def work(rank, _step):
        return [("gemm", 10), ("flash_fwd", 500 if rank == 3 else 440)]

    messages = ((0, 2), (1, 3))
    cause = causes(make_run, job, work, messages=messages)
    assert cause is Cause.SEQUENCE_LENGTH_IMBALANCE


def test_a_slow_device_of_another_model_is_named_for_it(make_run, job):
    def work(rank, _step):
        return [("gemm", 600 if rank == 3 else 400)]

    old = {0: "H100", 1: "H100", 2: "H100", 3: "A100"}
    assert causes(make_run, job, work, old) is Cause.HETEROGENEOUS_DEVICE
    assert causes(make_run, job, work, old | {2: "A100"}) is Cause.SLOW_DEVICE  # another is fast
    assert causes(make_run, job, work, {3: "A100"}) is Cause.SLOW_DEVICE  # not known of all


def test_an_encoder_that_takes_most_of_the_excess_is_the_cause(make_run, job):
    for share, cause in ((47, Cause.MODALITY_IMBALANCE), (46, Cause.SLOW_DEVICE)):
        # rank 3 takes 200 µs more than the others, 150 more than the mean: 70 % are 105 µs. Its
        # encoder takes 35.25 or 34.5 µs more than the mean, 105.75 or 103.5 with its backward pass
        def work(rank, _step, share=share):
            more, rest = (share, 200 - share) if rank == 3 else (0, 0)
            return [("conv", 100 + more), ("elementwise", 300 + rest)]

        traces = job(work)
        for trace in traces.values():
            for step in range(1, 6):
                trace.annotation(1_000 * step - 0.2, 0.7, "vision encoder")
        assert finding_of(make_run(traces)).cause is cause


def test_a_stage_that_only_communicates_is_even(make_run, job):
    us = {0: 0, 1: 0, 2: 400, 3: 400}
    traces = job(lambda rank, _step: [("gemm", us[rank])] if us[rank] else [])
    for rank in (0, 1):
        for step in range(1, 6):
            traces[rank].copy(1_000 * step, 5, launched=1_000 * step)
    found = finding_of(make_run(with_messages(traces, (0, 2), (1, 3))))
    assert (found.status, found.measured.value) == (Status.CLEAR, 0)
