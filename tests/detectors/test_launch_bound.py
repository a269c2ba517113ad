"""`launch-bound`: many short gaps before late launches, on the median rank."""

from __future__ import annotations

import pytest

from tracekit.config import Config
from tracekit.detectors import detectors, findings_of
from tracekit.findings import Cause, Level, Status


def finding_of(run, **limits):
    (found,) = findings_of(detectors()["launch-bound"], run, Config({"launch-bound": limits}))
    return found


def launching(trace, period_us, *, busy_us=10, n_kernels=50, n_steps=5, op=True):
    """Kernels of `busy_us`, one every `period_us`: each is launched 3 µs before it starts."""
    at = 1_000
    for step in range(1, n_steps + 1):
        trace.step(step, at - 4, n_kernels * period_us)
        for n in range(n_kernels):
            start = at + n * period_us
            if op:
                trace.op(start - period_us + 1, period_us - 1, "aten::add")
            trace.kernel(start, busy_us, launched=(start - 3, 1))
        at += n_kernels * period_us
    return trace


def test_a_host_slower_than_the_device_starves_it(make_run, trace):
    found = finding_of(make_run(launching(trace, 40)))
    assert (found.status, found.cause) == (Status.FOUND, Cause.LAUNCH_OVERHEAD)
    assert found.measured.value == pytest.approx(30 / 40)
    assert found.title == "Launching starves the devices for 75.0 % of a step"
    assert found.saving.per_step_ns.high == pytest.approx(50 * 30_000)
    # 28 µs of each gap are the host's; an operator costs 3.8 µs of its 39, so 2.7 of the 28
    assert found.saving.per_step_ns.low == pytest.approx(50 * (28_000 - 28 / 39 * 3_800), rel=0.01)
    rank, n_kernels, per_s, median_ns, graph_share, n_calls, call_ns = found.evidence[0].rows[0]
    assert (rank, n_kernels, per_s, median_ns) == (0, 50, pytest.approx(25_000), 10_000)
    assert (graph_share, n_calls, call_ns) == (0, 50, 1_000)


@pytest.mark.parametrize(("busy", "is_found"), [(44.9, True), (45.1, False)])
def test_the_limit_from_both_sides(make_run, trace, busy, is_found):
    found = finding_of(make_run(launching(trace, 50, busy_us=busy)))
    assert (found.status is Status.FOUND) == is_found
    assert found.measured.value == pytest.approx(1 - busy / 50, abs=0.001)


def test_python_between_operators_counts_too(make_run, trace):
    found = finding_of(make_run(launching(trace, 40, op=False)))
    assert found.measured.value == pytest.approx(0.75)


def test_one_long_gap_is_another_thing(make_run, trace):
    for step in range(1, 6):
        at = 10_000 * step
        trace.step(step, at - 5, 10_000)
        trace.kernel(at, 8_000, launched=(at - 3, 1))
        trace.op(at + 8_000, 1_990, "aten::huge")
    found = finding_of(make_run(trace))
    assert found.status is Status.CLEAR
    assert found.measured.value == 0


def test_one_rank_alone_is_a_slow_host_and_none_of_this(make_run, runs):
    ranks = {rank: launching(runs.Trace(), 40, busy_us=39) for rank in range(3)}
    ranks[1] = launching(runs.Trace(), 40, busy_us=10)
    assert finding_of(make_run(ranks)).status is Status.CLEAR


def test_the_share_of_kernels_from_graphs_is_shown(make_run, trace):
    launching(trace, 40)
    for row in trace.rows["launches"][::2]:
        row["role"] = "graph-launch"
    assert finding_of(make_run(trace)).evidence[0].rows[0][4] == pytest.approx(0.5)


def test_a_heavy_profiler_forbids_a_saving(make_run, trace):
    found = finding_of(make_run(launching(trace, 40), flags=("record_shapes",)))
    assert (found.saving, found.confidence.level) == (None, Level.LOW)


def test_without_kernels_it_is_skipped(make_run, trace):
    found = finding_of(make_run(trace.op(0, 10)))
    assert found.status is Status.SKIPPED
    assert "no kernels and no launches" in found.why


def test_of_two_ranks_the_better_one_tells_a_slow_host_from_a_job(make_run, runs):
    ranks = {0: launching(runs.Trace(), 40, busy_us=39), 1: launching(runs.Trace(), 40, busy_us=10)}
    assert finding_of(make_run(ranks)).status is Status.CLEAR
