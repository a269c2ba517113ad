"""`idle-gpu`: idle time with its cause, exact savings, and what must not be promised."""

from __future__ import annotations

import pytest

from tracekit.config import Config
from tracekit.detectors import detectors, findings_of
from tracekit.findings import Cause, Level, Status


def finding_of(run, **limits):
    (found,) = findings_of(detectors()["idle-gpu"], run, Config({"idle-gpu": limits}))
    return found


def job(trace, busy, *, operator="enumerate(DataLoader)#x.__next__", n_steps=5):
    """Steps of 1,000 µs that compute for `busy`, then wait for the host under one operator."""
    for step in range(1, n_steps + 1):
        at = 1000 * step
        trace.step(step, at - 1, 1000)
        trace.kernel(at, busy, launched=(at - 1, 1))
        if operator:
            trace.op(at + busy, 999 - busy, operator)
    return trace


def test_idle_time_has_its_cause_and_the_saving_comes_down_to_the_limit(make_run, trace):
    found = finding_of(make_run(job(trace, 600)))
    assert (found.status, found.cause) == (Status.FOUND, Cause.INPUT_PIPELINE)
    assert found.measured.value == pytest.approx(0.4)
    assert found.saving.per_step_ns.low == pytest.approx(300_000)  # from 40 % to 10 %
    assert found.saving.per_step_ns.high == pytest.approx(400_000)
    assert found.title == "The devices are idle for 40.0 % of the step"
    cause, idle_ns, share, detail = found.evidence[0].rows[0]
    assert (cause, idle_ns, share) == ("input-pipeline", 400_000, 0.4)
    assert detail == "enumerate(DataLoader)#x.__next__"


@pytest.mark.parametrize(("busy", "is_found"), [(899, True), (901, False)])
def test_the_limit_from_both_sides(make_run, trace, busy, is_found):
    found = finding_of(make_run(job(trace, busy)))
    assert (found.status is Status.FOUND) == is_found
    assert found.measured.value == pytest.approx(1 - busy / 1000)
    assert found.limit.value == 0.1


def test_idle_time_without_launches_promises_nothing(make_run, trace):
    for step in range(1, 6):
        trace.kernel(1000 * step, 400)
    found = finding_of(make_run(trace))
    assert (found.status, found.cause) == (Status.FOUND, Cause.UNKNOWN)
    assert (found.saving.per_step_ns.low, found.saving.share) == (0, 0)


def test_a_heavy_profiler_makes_it_an_upper_bound(make_run, trace):
    found = finding_of(make_run(job(trace, 600), flags=("with_stack",)))
    assert found.confidence.level is Level.LOW
    assert "Record again without them" in found.confidence.reason
    assert found.saving.per_step_ns.low == 0


def test_only_ranks_that_are_idle_are_named(make_run, runs):
    run = make_run({0: job(runs.Trace(), 950), 1: job(runs.Trace(), 400)})
    found = finding_of(run)
    assert found.ranks == (1,)
    assert found.measured.value == pytest.approx((0.05 + 0.6) / 2)


def test_a_device_that_is_another_ranks_is_no_idle_device(make_run, trace):
    trace = job(trace, 950)
    trace.kernel(2100, 1, launched=(2090, 1), device=1)
    found = finding_of(make_run(trace))
    assert found.status is Status.CLEAR
    assert found.measured.value == pytest.approx(0.05)


def test_where_the_training_thread_stands_for_the_device_it_says_so(make_run, trace):
    for step in range(1, 6):
        trace.step(step, 1000 * step, 1000).op(1000 * step, 400)
        trace.annotation(1000 * step + 400, 600, "dataloader_next")
    found = finding_of(make_run(trace))
    assert found.title == "The training thread is idle for 60.0 % of the step"
    assert found.cause is Cause.INPUT_PIPELINE
    assert "training thread stands for the device" in found.confidence.reason


def test_without_any_activity_it_is_skipped_and_says_how_to_record(make_run, trace):
    found = finding_of(make_run(trace))
    assert found.status is Status.SKIPPED
    assert "ProfilerActivity.CUDA" in found.why
