"""`profiler-overhead`: what recording cost, in gaps of the device; a note, never a warning."""

from __future__ import annotations

import pytest

from tracekit.config import Config
from tracekit.detectors import detectors, findings_of
from tracekit.findings import Cause, Status


def finding_of(run, **limits):
    (found,) = findings_of(
        detectors()["profiler-overhead"], run, Config({"profiler-overhead": limits})
    )
    return found


def recorded(trace, *, busy=400, n_operators=10):
    """Steps of 1,000 µs: the device works for `busy`, then waits under operators of 10 µs."""
    for step in range(1, 6):
        at = 1_000 * step
        trace.step(step, at - 5, 1_000)
        trace.kernel(at, busy, launched=(at - 3, 1))
        for n in range(n_operators):
            trace.op(at + 450 + 20 * n, 10, "aten::add")
    return trace


@pytest.mark.parametrize(
    ("flags", "cost_us"),
    [((), 3.8), (("record_shapes",), 8.0), (("profile_memory",), 8.0), (("with_stack",), 12.6)],
)
def test_operators_cost_what_their_options_make_them_cost(make_run, trace, flags, cost_us):
    found = finding_of(make_run(recorded(trace), flags=flags), max_step_share=0.01)
    assert (found.status, found.cause) == (Status.FOUND, Cause.PROFILER_OVERHEAD)
    assert found.measured.value == pytest.approx(10 * cost_us / 1_000)
    assert found.saving is None
    assert found.evidence[0].rows[0][:3] == (0, pytest.approx(10), cost_us * 1_000)


def test_the_options_to_switch_off_are_named(make_run, trace):
    found = finding_of(make_run(recorded(trace), flags=("with_stack", "record_shapes")))
    assert found.recommendation.commands == (
        "torch.profiler.profile(..., record_shapes=False, with_stack=False)",
    )


def test_without_costly_options_an_unprofiled_step_time_is_asked_for(make_run, trace):
    found = finding_of(make_run(recorded(trace)), max_step_share=0.01)
    assert "without the profiler" in found.recommendation.text


def test_what_is_recorded_under_a_busy_device_slowed_nothing_down(make_run, trace):
    found = finding_of(make_run(recorded(trace, busy=990), flags=("with_stack",)))
    assert (found.status, found.measured.value) == (Status.CLEAR, 0)


@pytest.mark.parametrize(("n", "is_found"), [(14, True), (13, False)])
def test_the_limit_from_both_sides(make_run, trace, n, is_found):
    found = finding_of(make_run(recorded(trace, n_operators=n)))  # 53 and 49 of 1,000 µs
    assert (found.status is Status.FOUND) == is_found


def test_the_profilers_own_work_counts_and_a_full_queue_does_not(make_run, trace):
    recorded(trace, n_operators=1)
    for step in range(1, 6):
        at = 1_000 * step
        trace.add("other_events", at + 500, 100, name="Buffer Flush", category="overhead")
        full = {"name": "Command Buffer Full", "category": "overhead"}
        trace.add("other_events", at + 700, 200, **full)
    assert finding_of(make_run(trace)).measured.value == pytest.approx(0.1 + 0.0038)


def test_without_devices_all_operators_count(make_run, trace):
    for step in range(1, 6):
        trace.step(step, 1_000 * step, 1_000)
        for n in range(20):
            trace.op(1_000 * step + 50 * n, 40, "aten::add")
    found = finding_of(make_run(trace))
    assert found.measured.value == pytest.approx(20 * 3.8 / 1_000, rel=0.02)


def test_without_operators_it_is_skipped(make_run, trace):
    assert finding_of(make_run(trace.kernel(0, 10))).status is Status.SKIPPED
