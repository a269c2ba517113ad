"""Which steps enter the averages: section 1, with ranks that lack steps, marks or work."""

from __future__ import annotations

import pytest

from tracekit.derive.averages import averages, mean_steps
from tracekit.errors import UsageError


def fill(trace, steps, *, busy=50, device=0, is_marked=True):
    """One kernel of `busy` µs in each step of 100 µs."""
    for step in steps:
        if is_marked:
            trace.step(step, 100 * step, 100)
        trace.kernel(100 * step + 10, busy, launched=100 * step, device=device)
    return trace


def chosen(run):
    return averages(run)


def test_the_first_and_the_cut_step_are_left_out(make_run, trace):
    found = chosen(make_run(fill(trace, (3, 4, 5, 6))))  # 3 first, 6 cut
    assert found.steps == (4, 5)
    assert found.why == "whole steps other than the first"
    assert found.is_comparable


def test_all_whole_steps_are_used_where_too_few_remain(make_run, trace):
    found = chosen(make_run(fill(trace, (3, 4, 5))))
    assert found.steps == (3, 4)
    assert "too few to leave the first out" in found.why


def test_the_cut_step_is_used_where_there_is_no_other(make_run, trace):
    found = chosen(make_run(fill(trace, (3,))))
    assert found.steps == (3,)
    assert found.why.startswith("cut steps")


def test_without_marks_the_whole_trace_is_averaged_and_ranks_are_not_compared(make_run, trace):
    found = chosen(make_run(fill(trace, (1, 2), is_marked=False)))
    assert found.steps == (0,)
    assert not found.is_comparable


def test_only_steps_of_all_ranks_are_used(make_run, runs):
    run = make_run({0: fill(runs.Trace(), range(1, 7)), 1: fill(runs.Trace(), range(2, 8))})
    # complete and not first: 2–5 on rank 0, 3–6 on rank 1
    assert chosen(run).steps == (3, 4, 5)


def test_a_rank_without_marks_is_left_out_and_named(make_run, runs):
    run = make_run(
        {
            0: fill(runs.Trace(), range(1, 5)),
            1: fill(runs.Trace(), range(1, 5)),
            2: fill(runs.Trace(), range(1, 5), is_marked=False),
        }
    )
    found = chosen(run)
    assert found.steps == (2, 3)
    assert found.why.endswith("rank 2")
    assert mean_steps(run)["rank"].to_list() == [0, 1]


def test_a_device_that_hardly_ran_is_no_idle_device(make_run, trace):
    fill(trace, (1, 2, 3, 4), busy=50)
    trace.kernel(210, 1, launched=205, device=1)  # another's device: 1 µs against 200
    run = make_run(trace)
    assert chosen(run).steps == (2, 3)
    assert mean_steps(run)["device"].to_list() == [0]


def test_two_busy_devices_are_both_averaged(make_run, trace):
    fill(trace, (1, 2, 3, 4), busy=50)
    for step in (1, 2, 3, 4):
        trace.kernel(100 * step + 10, 20, launched=100 * step, device=1)
    means = mean_steps(make_run(trace))
    assert means.select("device", "compute_ns").rows() == [(0, 50_000.0), (1, 20_000.0)]


def test_steps_can_be_limited_by_the_traces_own_numbers(make_run, trace):
    run = make_run(fill(trace, range(10, 18)))
    limited = type(run)(run.folder, run.manifest, (12, 14))
    assert chosen(limited).steps == (12, 13)


def test_a_limit_that_holds_no_step_is_refused(make_run, trace):
    run = make_run(fill(trace, range(10, 14)))
    limited = type(run)(run.folder, run.manifest, (2, 4))
    with pytest.raises(UsageError) as refused:
        chosen(limited)
    assert str(refused.value) == "no step in 2:4"
    assert "10 to 13" in refused.value.hint


def test_the_mean_is_that_of_the_averaged_steps(make_run, trace):
    for step, busy in ((1, 90), (2, 30), (3, 50), (4, 90)):
        fill(trace, (step,), busy=busy)
    means = mean_steps(make_run(trace))
    # steps 2 and 3: 30 and 50 µs of compute in windows of 100 µs
    assert means["compute_ns"].to_list() == [40_000.0]
    assert means["idle_ns"].to_list() == [60_000.0]
    assert means["dur_ns"].to_list() == [100_000.0]


def test_no_events_leave_nothing_to_average(make_run, trace):
    run = make_run(trace)
    assert chosen(run).steps == ()
    assert mean_steps(run).is_empty()
