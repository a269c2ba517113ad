"""Launching calls of each rank, and how long they take against the median rank's (µs)."""

from __future__ import annotations

from tracekit.derive.averages import averages
from tracekit.derive.call_totals import call_totals, slowness


def calling(trace, *calls, n_steps=4):
    """Steps with a kernel, launched by a call that is not counted, and `calls`: (name, µs)."""
    for step in range(1, n_steps + 1):
        at = 1_000 * step
        trace.step(step, at, 1_000).kernel(at + 1, 500)
        trace.call(at, 1, "cudaMemsetAsync", role="copy", correlation=trace.n_launched)
        for number, (name, us) in enumerate(calls):
            role = "graph-launch" if "Graph" in name else "launch"
            trace.call(at + 10 + 20 * number, us, name, role=role)
    return trace


def test_calls_are_counted_by_step_and_name_with_the_median_of_one(make_run, trace):
    calls = [("cudaLaunchKernel", 5), ("cudaLaunchKernel", 9), ("cudaLaunchKernel", 6)]
    run = make_run(calling(trace, *calls, ("cudaGraphLaunch", 12), n_steps=2))
    assert call_totals(run, 0).collect().rows() == [
        (1, "cudaGraphLaunch", 1, 12_000),
        (1, "cudaLaunchKernel", 3, 6_000),
        (2, "cudaGraphLaunch", 1, 12_000),
        (2, "cudaLaunchKernel", 3, 6_000),
    ]


def test_calls_of_other_roles_and_outside_of_steps_are_none(make_run, trace):
    calling(trace, n_steps=2).call(1_300, 5, "cudaStreamSynchronize", role="sync")
    trace.call(100, 5, "cudaLaunchKernel", role="launch")
    assert call_totals(make_run(trace), 0).collect().is_empty()


def slowness_of(make_run, runs, by_rank):
    traces = {rank: calling(runs.Trace(), *calls) for rank, calls in by_rank.items()}
    run = make_run(traces, world_size=64)
    return slowness(run, averages(run).steps).rows()


def test_own_calls_against_the_median_ranks(make_run, runs):
    calls = {3: [("a", 5)] * 2, 7: [("a", 8)] * 2, 20: [("a", 6)] * 4}
    assert slowness_of(make_run, runs, calls) == [
        (3, "a", 2, 10_000, 12_000),
        (7, "a", 2, 16_000, 12_000),
        (20, "a", 4, 24_000, 24_000),
    ]


def test_calls_that_not_all_ranks_make_are_left_out(make_run, runs):
    calls = {0: [("a", 5), ("b", 9)], 1: [("a", 5)], 2: [("a", 5), ("b", 2)]}
    assert {row[1] for row in slowness_of(make_run, runs, calls)} == {"a"}


def test_a_rank_without_any_call_is_not_compared(make_run, runs):
    assert [
        row[0] for row in slowness_of(make_run, runs, {0: [("a", 5)], 1: [], 2: [("a", 5)]})
    ] == [
        0,
        2,
    ]


def test_without_calls_or_of_no_length_there_is_nothing_to_compare(make_run, runs):
    assert slowness_of(make_run, runs, {0: [], 1: []}) == []
    assert slowness_of(make_run, runs, {0: [("a", 0)], 1: [("a", 0)]}) == []
    run = make_run({0: runs.Trace(), 1: runs.Trace()})
    assert slowness(run, averages(run).steps).is_empty()
