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


def test_on_a_host_thread_slower_operators_are_a_slow_host(make_run, runs):
    traces = {rank: runs.Trace() for rank in range(2)}
    for rank, trace in traces.items():
        for step in range(1, 5):
            trace.step(step, 1000 * step, 1000).op(1000 * step, 400 + 200 * rank)
    assert finding_of(make_run(traces)).cause is Cause.SLOW_HOST
