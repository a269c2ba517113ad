"""`host-sync`: calls that drain the queue, what they leave idle, and what must not be promised."""

from __future__ import annotations

import pytest

import tracekit
from tracekit.config import Config
from tracekit.detectors import detectors, findings_of
from tracekit.findings import Cause, Level, Status
from tracekit.sample_traces import scenarios


def finding_of(run, **limits):
    (found,) = findings_of(detectors()["host-sync"], run, Config({"host-sync": limits}))
    return found


def read_back(trace, gap_us, *, held_us=500, n_steps=5, step_us=10_000):
    """Each step computes, reads a value back, and launches the rest `gap_us` after the device."""
    for step in range(1, n_steps + 1):
        at = step_us * step
        trace.step(step, at - 2, step_us)
        trace.kernel(at, 4_000, launched=(at - 1, 1))
        trace.op(at + 4_000 - held_us, held_us, "aten::item")
        trace.call(at + 4_000 - held_us + 1, held_us, "cudaStreamSynchronize", role="sync")
        rest = at + 4_000 + gap_us
        trace.kernel(rest, step_us - 4_000 - gap_us, launched=(rest - 5, 2))
    return trace


def test_the_gap_behind_a_blocking_call_is_its_stall(make_run, trace):
    found = finding_of(make_run(read_back(trace, 400)))
    assert (found.status, found.cause) == (Status.FOUND, Cause.HOST_SYNC)
    assert found.title == "Waiting for the device leaves it idle 1 time a step"
    assert found.measured.value == pytest.approx(0.04)
    assert found.saving.per_step_ns.high == pytest.approx(400_000)
    assert found.saving.per_step_ns.low == pytest.approx(397_000)  # without 3 µs of launch latency
    call, n_stalls, stall_ns, longest_ns = found.evidence[0].rows[0]
    assert call == "cudaStreamSynchronize in aten::item"
    assert (n_stalls, stall_ns, longest_ns) == (1, 400_000, 400_000)
    name, n_calls, held_ns = found.evidence[2].rows[0]
    assert (name, n_calls, held_ns) == ("cudaStreamSynchronize", 1, 500_000)


def test_a_call_that_hardly_held_the_host_saves_no_more_than_that(make_run, trace):
    # The host needs the 400 µs anyway: without the call it would be 50 µs earlier.
    found = finding_of(make_run(read_back(trace, 400, held_us=50)))
    assert found.measured.value == pytest.approx(0.04)
    assert found.saving.per_step_ns.high == pytest.approx(50_000)


@pytest.mark.parametrize(("gap", "is_found"), [(300, True), (299, False)])
def test_the_limit_from_both_sides(make_run, trace, gap, is_found):
    found = finding_of(make_run(read_back(trace, gap)))
    assert (found.status is Status.FOUND) == is_found
    assert found.limit.value == 0.03


def test_recording_the_operators_in_the_gap_is_taken_off_the_low_end(make_run, trace):
    read_back(trace, 400)
    for step in range(1, 6):
        for n in range(10):
            trace.op(10_000 * step + 4_010 + 30 * n, 20, "aten::empty")
    found = finding_of(make_run(trace))
    assert found.saving.per_step_ns.low == pytest.approx(397_000 - 10 * 3_800, abs=100)
    assert found.saving.per_step_ns.high == pytest.approx(400_000)


def test_a_heavy_profiler_forbids_a_saving(make_run, trace):
    found = finding_of(make_run(read_back(trace, 400), flags=("with_stack",)))
    assert found.status is Status.FOUND
    assert found.saving is None
    assert found.confidence.level is Level.LOW


def test_only_ranks_that_stall_are_named(make_run, runs):
    run = make_run({0: read_back(runs.Trace(), 10), 1: read_back(runs.Trace(), 800)})
    found = finding_of(run)
    assert found.ranks == (1,)
    assert found.measured.value == pytest.approx(0.08)


def test_short_allocations_behind_the_call_do_not_take_its_place(make_run, trace):
    read_back(trace, 400)
    for step in range(1, 6):
        trace.call(10_000 * step + 4_020, 300, "cudaMalloc", role="allocation")
    assert finding_of(make_run(trace)).status is Status.FOUND


def test_long_allocations_do(make_run, trace):
    read_back(trace, 2_000)
    for step in range(1, 6):
        trace.call(10_000 * step + 4_020, 1_900, "cudaMalloc", role="allocation")
    assert finding_of(make_run(trace)).status is Status.CLEAR


def test_without_runtime_calls_it_is_skipped(make_run, trace):
    found = finding_of(make_run(trace.kernel(0, 10)))
    assert found.status is Status.SKIPPED
    assert "no launches" in found.why


def test_metadata_read_back_before_each_burst_is_told_from_a_printed_loss(tmp_path):
    scenarios()["gnn-metadata-sync"].build(tmp_path, 3, 1.0)
    result = tracekit.analyze(tmp_path, engine="local:1")
    found = result.findings[0]
    assert found.id == "host-sync"
    assert "to read 32 small values a step" in found.why  # two for each of sixteen layers
    assert "capture the step as a CUDA graph" in found.recommendation.text
    (row,) = (each for each in result.inefficiencies if each.row == 29)
    assert (row.system, row.finding, row.state) == ("ZeroGNN", "host-sync", Status.FOUND)


def test_on_a_healthy_run_the_published_inefficiency_is_checked_and_fine(tmp_path):
    scenarios()["gnn-metadata-sync"].build(tmp_path, 3, 0.0)
    result = tracekit.analyze(tmp_path, engine="local:1")
    assert {each.state for each in result.inefficiencies if each.row == 29} == {Status.CLEAR}


def test_a_loss_read_once_a_step_is_no_metadata(make_run, trace):
    read_back(trace, 400)
    for step in range(1, 6):
        trace.copy(10_000 * step + 3_990, 2, "DtoH", launched=10_000 * step + 3_000, size_bytes=4)
    found = finding_of(make_run(trace))
    assert "small values" not in found.why
    assert found.recommendation is None
