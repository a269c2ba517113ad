"""`input-stall`: at which steps devices wait for input, and what that costs (steps of 10 ms)."""

from __future__ import annotations

import pytest

import tracekit
from tracekit.config import Config
from tracekit.derive.periods import period
from tracekit.detectors import detectors, findings_of
from tracekit.findings import Cause, Severity, Status
from tracekit.sample_traces import scenarios

LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def finding_of(run, **limits):
    (found,) = findings_of(detectors()["input-stall"], run, Config({"input-stall": limits}))
    return found


def fed(trace, stalls_us, *, step_us=10_000, first=1, asked_twice=()):
    """Each step waits `stalls_us[n]` for its batch under its own mark, then computes."""
    for n, stall in enumerate(stalls_us):
        at = step_us * (n + 1)
        trace.step(first + n, at, step_us)
        if first + n in asked_twice:
            trace.annotation(at, 5, LOADER)
        trace.annotation(at + 5, stall, LOADER)
        trace.kernel(at + stall + 10, step_us - stall - 10, launched=(at + stall + 5, 2))
    return trace


def test_every_step_waits_and_the_saving_is_the_stall(make_run, trace):
    found = finding_of(make_run(fed(trace, [2_000] * 6)))
    assert (found.status, found.cause, found.ranks) == (Status.FOUND, Cause.INPUT_PIPELINE, (0,))
    assert found.title == "The device of rank 0 waits for input in every step"
    # from the end of the kernel at 0 to 2,007 µs, when the launch returns, and 3 µs of latency
    assert found.measured.value == pytest.approx(0.201)
    assert found.saving.per_step_ns.high == pytest.approx(2_010_000)
    assert found.saving.per_step_ns.low == pytest.approx(2_007_000)
    assert found.saving.assumes
    assert found.evidence[1].rows[0] == (2, 2_010_000)  # the stall before step 2 is its own


def test_every_fourth_step_names_the_period_and_the_workers(make_run, trace):
    stalls = [4_000 if n % 4 == 3 else 50 for n in range(14)]
    found = finding_of(make_run(fed(trace, stalls)))
    assert "waits for input every 4 steps (4 loader workers are likely)" in found.title
    assert found.steps == (4, 8, 12)
    # The windows of steps 2 to 13 hold three stalls of 4,010 µs in twelve steps: one in four.
    assert found.saving.per_step_ns.high == pytest.approx(4_010_000 / 4)


def test_a_capture_that_holds_one_stall_more_counts_one_in_k_steps(make_run, trace):
    stalls = [4_000 if n % 4 == 3 else 50 for n in range(13)]  # three in eleven averaged steps
    found = finding_of(make_run(fed(trace, stalls)))
    assert found.measured.value == pytest.approx(3 * 0.401 / 11)
    assert found.saving.per_step_ns.high == pytest.approx(4_010_000 / 4)


def test_epochs_that_begin_with_a_stall_ask_for_persistent_workers(make_run, trace):
    stalls = [4_000 if n in (3, 8) else 50 for n in range(12)]
    found = finding_of(make_run(fed(trace, stalls, asked_twice=(4, 9))))
    assert found.title.endswith("waits for input where an epoch starts")
    assert found.recommendation.commands == ("DataLoader(..., persistent_workers=True)",)


def test_irregular_stalls_are_counted_and_no_period_is_claimed(make_run, trace):
    stalls = [4_000 if n in (3, 5, 10) else 50 for n in range(12)]
    assert finding_of(make_run(fed(trace, stalls))).title.endswith(
        "waits for input in 3 of 11 steps"
    )


@pytest.mark.parametrize(
    ("series", "every"),
    [
        ([0, 0, 0, 9] * 4, 4),
        ([9, 0, 0] * 3 + [9], 3),
        ([0, 121, 328, 0, 0, 613, 320, 140, 0, 592, 175, 200, 0, 597, 235, 212, 0, 671, 391], 4),
        ([5, 6, 5, 6, 5, 6, 5, 6, 5], None),  # every step waits
        ([0, 0, 9, 0, 9, 0, 0, 0, 0, 9, 0, 0], None),
        ([9, 0, 0, 9, 0, 0], None),  # two cycles
        ([0] * 12, None),
        ([], None),
    ],
)
def test_a_period_is_where_most_cycles_have_their_peak(series, every):
    assert period(series) == every


@pytest.mark.parametrize(("stall", "is_found"), [(209, True), (188, False)])
def test_a_batch_that_is_ready_is_no_stall(make_run, trace, stall, is_found):
    # 200 µs are the least that count, with the launch and 3 µs of latency behind it
    found = finding_of(make_run(fed(trace, [stall] * 6, step_us=2_000)))
    assert (found.status is Status.FOUND) == is_found


@pytest.mark.parametrize(("stall", "is_found"), [(200, True), (180, False)])
def test_the_share_from_both_sides(make_run, trace, stall, is_found):
    found = finding_of(make_run(fed(trace, [stall] * 6)), min_stall_ns=0)
    assert (found.status is Status.FOUND) == is_found
    assert found.measured.value == pytest.approx((stall + 10) / 10_000)


def test_a_drained_queue_before_the_loader_leaves_the_stall_with_the_loader(make_run, trace):
    fed(trace, [2_000] * 6)
    for n in range(1, 6):
        trace.call(10_000 * (n + 1) - 50, 49, "cudaStreamSynchronize", role="sync")
    run = make_run(trace)
    assert finding_of(run).status is Status.FOUND
    (other,) = findings_of(detectors()["host-sync"], run, Config())
    assert other.status is Status.CLEAR


def test_a_stall_that_waiting_for_others_hides_is_worth_nothing_for_sure(make_run, runs):
    # Rank 1 waits 2 ms for input and then 3 ms for rank 0, which computes longer.
    traces = {0: runs.Trace(), 1: runs.Trace()}
    for n in range(6):
        at = 10_000 * (n + 1)
        for rank, trace in traces.items():
            trace.step(n + 1, at, 10_000)
            start = at + (2_010 if rank else 10)
            trace.annotation(at + 2, start - at - 10, LOADER if rank else "forward")
            trace.kernel(start, 4_990 if rank else 8_990, launched=(start - 5, 2))
        for rank, start in ((0, 9_000), (1, 7_000)):
            traces[rank].collective(at + start, 10_000 - start, launched=at + 6_000, members=[0, 1])
    found = finding_of(make_run(traces))
    assert found.ranks == (1,)
    assert found.saving.per_step_ns.low == pytest.approx(7_000, abs=20_000)  # 2,007 less 2,000 µs
    assert found.saving.per_step_ns.high == pytest.approx(2_010_000)


def test_where_the_training_thread_stands_for_the_device_it_says_so(make_run, trace):
    for step in range(1, 6):
        trace.step(step, 1000 * step, 1000).op(1000 * step, 400)
        trace.annotation(1000 * step + 400, 600, "dataloader_next")
    found = finding_of(make_run(trace))
    assert found.title == "The training thread of rank 0 waits for input in every step"
    assert "training thread stands for the device" in found.confidence.reason


def test_a_rank_that_stalls_for_much_less_than_the_worst_is_not_at_fault(make_run, runs):
    # 2.6 % of a step are worth a note on their own, beside one rank's 20 % they are not the cause
    run = make_run({0: fed(runs.Trace(), [250] * 6), 1: fed(runs.Trace(), [2_000] * 6)})
    found = finding_of(run)
    assert found.ranks == (1,)
    assert found.title == "The device of rank 1 waits for input in every step"


def test_without_any_activity_it_is_skipped(make_run, trace):
    assert finding_of(make_run(trace)).status is Status.SKIPPED


def test_s23_a_freeze_every_num_workers_steps_is_starvation_with_that_period(tmp_path):
    scenarios()["input-every-fourth-step"].build(tmp_path, 3, 1.0)
    result = tracekit.analyze(tmp_path, engine="local:1")
    top = result.findings[0]
    assert (top.id, top.cause) == ("input-stall", Cause.INPUT_PIPELINE)
    assert top.title == "The devices wait for input every 4 steps (4 loader workers are likely)"
    assert result.headline[0].startswith(top.title)
    others = [found for found in result.findings if found.id != "input-stall"]
    assert {found.severity for found in others} <= {None, Severity.INFO}  # no hang, no network


def test_where_no_call_of_the_host_was_recorded_it_is_skipped_and_not_fine(make_run, trace):
    for step in range(1, 6):
        trace.step(step, 1_000 * step - 10, 1_000).kernel(1_000 * step, 600)
    for name in ("input-stall", "host-sync", "launch-bound"):
        trace.call(0, 1, "cudaGetDevice")
        (found,) = findings_of(detectors()[name], make_run(trace), Config())
        assert found.status is Status.SKIPPED
        assert found.why.startswith("for 34.8 % of the mean step the devices are idle")
        assert "ProfilerActivity.CPU" in found.why
