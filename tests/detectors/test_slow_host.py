"""`slow-host`: how long the same launching calls take on each host; steps of 1,000 µs."""

from __future__ import annotations

import dataclasses

import pytest

from tracekit.findings import Cause, Status

NAME = "slow-host"


@pytest.fixture
def launching(runs):
    """Ten kernels of 40 µs a step, each launched by a call of `call(rank)` µs.

    The call ends 1 µs before its kernel, `gap(rank)` µs behind the one before: 10 µs, if it is not
    given. Then all meet, until 10 µs before the next step. The host is in an operator throughout.
    """

    def traces_of(call, gap=None, *, ranks=range(4), n_steps=5, name="cudaLaunchKernel"):
        gap = gap or (lambda _rank: 10)
        traces = {rank: runs.Trace() for rank in ranks}
        for rank, trace in traces.items():
            for step in range(1, n_steps + 1):
                at = 1_000 * step
                trace.step(step, at - 40, 1_000).op(at - 40, 1_000)
                for number in range(10):
                    begins = at + number * (40 + gap(rank))
                    trace.kernel(begins, 40, launched=(begins - 1 - call(rank), call(rank)))
                ends = at + 400 + 9 * gap(rank)
                trace.collective(ends, at + 990 - ends, members=list(ranks))
            for row in trace.rows["launches"]:
                row["name"] = name if isinstance(name, str) else name(rank)
        return traces

    return traces_of


def slow(rank_slow, us, usual=5):
    return lambda rank: us if rank == rank_slow else usual


def test_the_slow_host_with_exact_slowness_and_saving(make_run, launching, finding_of):
    found = finding_of(NAME, make_run(launching(slow(2, 6), slow(2, 30, 10))))
    # calls of 6 instead of 5 µs; nine gaps a step of 30 instead of 10 µs
    assert (found.status, found.cause) == (Status.FOUND, Cause.SLOW_HOST)
    assert (found.subject, found.ranks, found.scope.victims) == ("rank 2", (2,), (0, 1, 3))
    assert found.measured.value == pytest.approx(0.2)
    assert found.title == "Rank 2 runs the same calls 20.0 % more slowly"
    assert found.saving.per_step_ns.low == found.saving.per_step_ns.high == 180_000
    # of each gap 1 µs is launch latency: ten gaps are 9 · 29 + 9, and 10 · 9 elsewhere
    assert found.evidence[0].rows[0] == (2, pytest.approx(0.2), 270_000, 180_000)
    assert found.evidence[0].rows[1] == (0, 0, 90_000, 0)
    assert found.evidence[1].rows == (("cudaLaunchKernel", 10, 6_000, 5_000, 10_000),)


@pytest.mark.parametrize(("us", "is_found"), [(5.51, True), (5.49, False)])
def test_how_much_slower_from_both_sides(make_run, launching, finding_of, us, is_found):
    found = finding_of(NAME, make_run(launching(slow(1, us), slow(1, 30, 10))))
    assert (found.status is Status.FOUND) == is_found
    assert found.measured.value == pytest.approx(us / 5 - 1)


@pytest.mark.parametrize(("gap", "is_found"), [(11.2, True), (11.1, False)])
def test_idle_time_behind_launches_from_both_sides(make_run, launching, finding_of, gap, is_found):
    # nine gaps are longer by 1.2 µs, 10.8 in all, or by 1.1, 9.9; the limit is 10
    found = finding_of(NAME, make_run(launching(slow(1, 6), slow(1, gap, 10))))
    assert (found.status is Status.FOUND) == is_found


def test_a_slow_host_that_keeps_its_device_busy_costs_nothing(make_run, launching, finding_of):
    found = finding_of(NAME, make_run(launching(slow(1, 8))))
    assert (found.status, found.measured.value) == (Status.CLEAR, pytest.approx(0.6))


def test_a_slow_host_that_costs_nothing_lends_its_slowness_to_none(make_run, launching, finding_of):
    call = {0: 5, 1: 8, 2: 6, 3: 5, 4: 5}
    run = make_run(launching(call.get, slow(2, 30, 10), ranks=range(5)))
    found = finding_of(NAME, run)
    assert (found.ranks, found.measured.value) == ((2,), pytest.approx(0.2))
    assert found.title == "Rank 2 runs the same calls 20.0 % more slowly"


def test_a_device_that_idles_behind_fast_calls_has_no_slow_host(make_run, launching, finding_of):
    found = finding_of(NAME, make_run(launching(slow(1, 5), slow(1, 30, 10))))
    assert (found.status, found.measured.value) == (Status.CLEAR, 0)


def test_ranks_of_one_host_are_named_with_it(make_run, launching, finding_of):
    ranks = (3, 4, 8, 9, 17)
    traces = launching(
        lambda rank: 6 if rank > 8 else 5, lambda rank: 30 if rank > 8 else 10, ranks=ranks
    )
    run = make_run(traces, world_size=32)
    hosts = {3: "a", 4: "a", 8: "a", 9: "b", 17: "b"}
    captures = [dataclasses.replace(c, host=hosts[c.rank]) for c in run.manifest.captures]
    manifest = dataclasses.replace(run.manifest, captures=tuple(captures))
    found = finding_of(NAME, dataclasses.replace(run, manifest=manifest))
    assert (found.subject, found.ranks) == ("ranks 9, 17", (9, 17))
    assert found.title == "Ranks 9, 17 on host b run the same calls 20.0 % more slowly"


def test_equal_hosts_are_clear(make_run, launching, finding_of):
    found = finding_of(NAME, make_run(launching(slow(0, 5))))
    assert (found.status, found.measured.value) == (Status.CLEAR, 0)


def test_calls_of_no_length_are_not_compared(make_run, launching, finding_of):
    found = finding_of(NAME, make_run(launching(slow(0, 0, 0))))
    assert found.status is Status.SKIPPED


def test_calls_that_differ_between_ranks_are_not_compared(make_run, launching, finding_of):
    found = finding_of(NAME, make_run(launching(slow(1, 9), name="cudaLaunchKernel{}".format)))
    assert (found.status, found.why[:30]) == (Status.SKIPPED, "no call is common to all ranks")


def test_without_launches_or_a_device_it_is_skipped(make_run, runs, launching, finding_of):
    traces = {rank: runs.Trace().step(1, 0, 100).kernel(0, 10) for rank in range(3)}
    assert "no launches" in finding_of(NAME, make_run(traces)).why
    traces = {rank: runs.Trace().op(0, 10).call(0, 5, "cudaFree") for rank in range(3)}
    found = finding_of(NAME, make_run(traces))
    assert found.why == "the training thread stands for the device here"
    assert finding_of(NAME, make_run(launching(slow(0, 5), ranks=(0,)))).status is Status.SKIPPED
