"""`stage-imbalance`: the longest stage of a pipeline, by hand; steps of 1,000 µs."""

from __future__ import annotations

import pytest

from tracekit.findings import Cause, Level, Status

NAME = "stage-imbalance"


@pytest.fixture
def pipelines(job):
    """Each rank computes `us[rank]` µs a step, and sends a message to `us`' next stage.

    `n` ranks form a stage: of four ranks and two a stage, 0 sends to 2, and 1 to 3.
    """

    def traces_of(us, *, n=2, kernels=None, n_steps=5):
        def work(rank, _step):
            count = (kernels or {}).get(rank, 1)
            return [("gemm", us[rank] / count)] * count

        traces = job(work, ranks=us, n_steps=n_steps)
        ranks = sorted(us)
        for rank, peer in zip(ranks, ranks[n:], strict=False):
            for step in range(1, n_steps + 1):
                at = 1_000 * step + 970
                traces[rank].collective(at, 5, "send", destination_rank=peer, members=None)
        return traces

    return traces_of


def test_the_longest_stage_with_exact_waste_and_saving(make_run, pipelines, finding_of):
    run = make_run(pipelines({0: 400, 1: 400, 2: 600, 3: 600}, kernels={2: 2, 3: 2}))
    found = finding_of(NAME, run)
    # stages of 400 and 600 µs: 1 − 500 / 600 is wasted, 100 µs a step; the other takes 200 less
    assert (found.status, found.subject) == (Status.FOUND, "stage 1")
    assert (found.ranks, found.scope.victims) == ((2, 3), (0, 1))
    assert found.measured.value == pytest.approx(1 / 6)
    assert found.saving.per_step_ns.low == pytest.approx(100_000)
    assert found.saving.per_step_ns.high == pytest.approx(200_000)
    assert found.title == "Stage 1 of 2 computes 20.0 % longer than the mean stage"
    assert found.evidence[0].rows[0][:3] == (0, "0, 1", 400_000)


def test_more_kernels_are_more_layers_and_slower_ones_a_slow_device(
    make_run, pipelines, finding_of
):
    us = {0: 400, 1: 400, 2: 600, 3: 600}
    more = finding_of(NAME, make_run(pipelines(us, kernels={0: 4, 1: 4, 2: 6, 3: 6})))
    assert (more.cause, more.why[:30]) == (Cause.STAGE_IMBALANCE, "it has more or bigger kernels,")
    slower = finding_of(NAME, make_run(pipelines(us)))
    assert slower.cause is Cause.SLOW_DEVICE
    assert slower.why == (
        "its kernels run slower, 200 µs a step more than the median of the other stages"
    )


@pytest.mark.parametrize(("extra", "is_found"), [(45, True), (44, False)])
def test_the_waste_from_both_sides(make_run, pipelines, finding_of, extra, is_found):
    # 22.5 of 445 µs are 5.06 %, 22 of 444 are 4.95 %
    found = finding_of(NAME, make_run(pipelines({0: 400, 1: 400 + extra}, n=1)))
    assert (found.status is Status.FOUND) == is_found


@pytest.mark.parametrize(("extra", "is_found"), [(41, True), (39, False)])
def test_the_share_of_the_step_from_both_sides(make_run, pipelines, finding_of, extra, is_found):
    # half of 41 µs are 20.5, of 39 they are 19.5; the limit is 20
    found = finding_of(NAME, make_run(pipelines({0: 100, 1: 100 + extra}, n=1)))
    assert (found.status is Status.FOUND) == is_found


def test_of_three_stages_the_median_other_bounds_the_saving(make_run, pipelines, finding_of):
    found = finding_of(NAME, make_run(pipelines({3: 300, 5: 700, 8: 400}, n=1)))
    assert (found.subject, found.ranks, found.scope.victims) == ("stage 1", (5,), (3, 8))
    assert found.saving.per_step_ns.high == pytest.approx(350_000)
    assert found.saving.per_step_ns.low == pytest.approx(700_000 - 1_400_000 / 3)


def test_equal_stages_are_clear(make_run, pipelines, finding_of):
    found = finding_of(NAME, make_run(pipelines(dict.fromkeys(range(4), 400))))
    assert (found.status, found.measured.value) == (Status.CLEAR, 0)


def test_one_slow_rank_is_no_slow_stage(make_run, pipelines, finding_of):
    us = dict.fromkeys(range(6), 400) | {5: 600}  # stages of three ranks: their median counts
    found = finding_of(NAME, make_run(pipelines(us, n=3)))
    assert (found.status, found.measured.value) == (Status.CLEAR, 0)


def test_a_pipeline_that_lost_a_stage_is_left_out(make_run, pipelines, finding_of):
    traces = pipelines({0: 400, 1: 900, 2: 400, 3: 400})
    del traces[3]  # rank 1 is a pipeline of one stage now
    found = finding_of(NAME, make_run(traces, world_size=4))
    assert (found.status, found.measured.value) == (Status.CLEAR, 0)


def test_a_pipeline_whose_first_rank_is_missing_keeps_its_stages(make_run, pipelines, finding_of):
    traces = pipelines({0: 400, 1: 400, 2: 600}, n=1)
    del traces[0]
    found = finding_of(NAME, make_run(traces, world_size=3))
    assert (found.subject, found.ranks) == ("stage 1", (2,))


def test_one_step_makes_it_unsure(make_run, pipelines, finding_of):
    found = finding_of(NAME, make_run(pipelines({0: 400, 1: 600}, n=1, n_steps=2)))
    assert (found.status, found.confidence.level) == (Status.FOUND, Level.LOW)


def test_without_messages_there_is_no_pipeline(make_run, job, finding_of):
    found = finding_of(NAME, make_run(job(lambda *_: [("gemm", 400)])))
    assert found.status is Status.SKIPPED
    assert found.why.startswith("ranks exchange no messages that name their peers: no pipeline")


def test_windows_that_may_hold_different_work_are_not_compared(make_run, pipelines, finding_of):
    traces = pipelines({0: 400, 1: 600}, n=1)
    for trace in traces.values():
        trace.rows["steps"].clear()
        trace.rows["annotations"].clear()
    found = finding_of(NAME, make_run(traces))
    assert found.status is Status.SKIPPED
    assert "prof.step()" in found.why


def test_stages_that_only_communicate_are_not_compared(make_run, pipelines, finding_of):
    traces = pipelines({0: 400, 1: 600}, n=1)
    for trace in traces.values():
        trace.rows["kernels"] = [r for r in trace.rows["kernels"] if r["kind"] == "communication"]
    found = finding_of(NAME, make_run(traces))
    assert found.status is Status.SKIPPED
    assert found.why.startswith("no compute of all stages in the averaged steps. Record")


def test_one_rank_or_no_events_are_skipped(make_run, pipelines, runs, finding_of):
    assert finding_of(NAME, make_run(pipelines({0: 400}))).why.startswith("one rank")
    found = finding_of(NAME, make_run({0: runs.Trace(), 1: runs.Trace()}))
    assert found.status is Status.SKIPPED
