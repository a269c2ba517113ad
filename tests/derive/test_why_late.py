"""What differs between a rank's mean step and its peers': kernels, copies, idle time (µs)."""

from __future__ import annotations

import pytest

from tracekit.derive.averages import averages
from tracekit.derive.kernel_totals import differences
from tracekit.derive.causes import cause_of, cause_of_lateness, cause_of_slowness
from tracekit.derive.idle_totals import idle_by_cause
from tracekit.findings import Cause

MORE = "more or bigger kernels"
SLOWER = "same kernels slower"


def job(runs, steps_of):
    """Four ranks, five steps of 1,000 µs; `steps_of(rank)` lists kernels (name, µs, grid)."""
    traces = {rank: runs.Trace() for rank in range(4)}
    for rank, trace in traces.items():
        for step in range(1, 6):
            at = 1000 * step
            trace.step(step, at - 20, 1000)
            for name, dur, grid in steps_of(rank):
                trace.kernel(at, dur, name, launched=at - 10)
                trace.rows["kernels"][-1]["grid_blocks"] = grid
                at += dur
    return traces


def differ_us(run):
    steps = averages(run).steps
    rows = differences(run, steps).select("rank", "slower_ns", "more_ns", "kind").rows()
    return {rank: (slower / 1000, more / 1000, kind) for rank, slower, more, kind in rows}


def test_the_same_kernels_that_take_longer_are_slower(make_run, runs):
    run = make_run(job(runs, lambda rank: [("gemm", 120 if rank == 3 else 100, 64)] * 2))
    assert differ_us(run)[3] == (40, 0, "gemm")  # two kernels of 120 instead of 100 µs
    assert differ_us(run)[0] == (0, 0, "gemm")


def test_more_of_the_same_kernels_are_more(make_run, runs):
    run = make_run(job(runs, lambda rank: [("gemm", 100, 64)] * (3 if rank == 3 else 2)))
    assert differ_us(run)[3] == (0, 100, "gemm")


def test_a_larger_grid_is_more_work_and_no_slower_device(make_run, runs):
    big, usual = ("gemm", 150, 96), ("gemm", 100, 64)
    run = make_run(job(runs, lambda rank: [big if rank == 3 else usual] * 2))
    assert differ_us(run)[3] == (0, 100, "gemm")  # 2 × 150 of one size for 2 × 100 of another


def told(traces, lengths):
    """The loop told of two samples in each step of each rank, of these lengths by rank."""
    for rank, length in lengths.items():
        for step in range(1, 6):
            row = {"step": step, "batch": 0, "length": length, "modality": None}
            traces[rank].add("samples", 1000 * step, 0, **row).add("samples", 1000 * step, 0, **row)
    return traces


def test_longer_samples_explain_longer_kernels_up_to_the_square_of_their_length(make_run, runs):
    traces = job(runs, lambda rank: [("gemm", 300 if rank == 3 else 100, 64)])
    run = make_run(told(traces, {0: 10, 1: 10, 2: 10, 3: 20}))
    assert differ_us(run)[3] == (0, 200, "gemm")  # (20² / 10² − 1) · 100 = 300 µs would do
    assert differ_us(run)[0] == (0, 0, "gemm")


def test_what_longer_samples_do_not_explain_is_slower(make_run, runs):
    traces = job(runs, lambda rank: [("gemm", 180 if rank == 3 else 100, 64)])
    run = make_run(told(traces, {0: 10, 1: 10, 2: 10, 3: 11}))
    assert differ_us(run)[3] == (59, 21, "gemm")  # (11² / 10² − 1) · 100 = 21 of 80 µs


def test_samples_that_not_all_ranks_told_explain_nothing(make_run, runs):
    traces = job(runs, lambda rank: [("gemm", 300 if rank == 3 else 100, 64)])
    run = make_run(told(traces, {0: 10, 1: 10, 3: 20}))
    assert differ_us(run)[3] == (200, 0, "gemm")


def test_the_part_that_differs_most_comes_first(make_run, runs):
    run = make_run(job(runs, lambda rank: [("gemm", 120 if rank == 3 else 100, 64)]))
    parts = differences_from_peers(run, (3,), list(run.ranks))
    assert parts.row(0, named=True) == {
        "part": SLOWER,
        "own_ns": 20_000,
        "peer_ns": 0,
        "extra_ns": 20_000,
    }
    assert set(parts["part"]) >= {SLOWER, MORE, "copies", "host-other"}


def test_several_ranks_are_compared_with_all_others(make_run, runs):
    run = make_run(job(runs, lambda rank: [("gemm", 140 if rank > 1 else 100, 64)]))
    parts = differences_from_peers(run, (2, 3), list(run.ranks))
    assert parts["part"][0] == SLOWER
    assert parts["extra_ns"][0] == 40_000


def test_idle_time_is_summed_by_rank_and_cause(make_run, runs):
    run = make_run(job(runs, lambda rank: [("gemm", 600 - 100 * rank, 64)]))
    rows = idle_by_cause(run).filter(cause="host-other")
    # each of three steps is idle after 600 − 100 · rank of 1,000 µs, up to a launch, 9 µs before
    assert rows.select("rank", "dur_ns").rows() == [
        (rank, 3 * 1000 * (391 + 100 * rank)) for rank in range(4)
    ]


def test_causes_of_parts(make_run, runs, trace):
    device = make_run({0: runs.Trace().kernel(0, 1)})
    host = make_run(trace.op(0, 1))
    assert cause_of_slowness(device) is Cause.SLOW_DEVICE
    assert cause_of_slowness(host) is Cause.SLOW_HOST
    assert cause_of_lateness(device, SLOWER) is Cause.SLOW_DEVICE
    assert cause_of_lateness(host, SLOWER) is Cause.SLOW_HOST
    assert cause_of_lateness(device, "launch-overhead") is Cause.SLOW_HOST
    assert cause_of("launch-overhead") is Cause.LAUNCH_OVERHEAD
    assert cause_of(MORE) is Cause.DATA_IMBALANCE
    assert cause_of("dependency") is Cause.UNKNOWN


@pytest.mark.parametrize("part", ["input-pipeline", "allocator", "host-sync", "compilation"])
def test_a_cause_on_the_host_keeps_its_name(make_run, trace, part):
    assert cause_of_lateness(make_run(trace), part).value == part


def test_a_rank_that_loads_data_after_a_call_that_all_make_differs_in_the_loading(make_run, runs):
    traces = {rank: runs.Trace() for rank in range(4)}
    for rank, trace in traces.items():
        for step in range(1, 6):
            at = 1000 * step
            load = 300 if rank == 1 else 0
            trace.step(step, at - 1, 1000)
            trace.kernel(at, 500, launched=at - 1)
            trace.call(at + 10, 492, "cudaStreamSynchronize", role="sync")  # the loss is printed
            trace.op(at + 510, load, "enumerate(DataLoader)#x.__next__")
            trace.kernel(at + 600 + load, 10, launched=at + 590 + load)
    run = make_run(traces)
    assert differences_from_peers(run, (1,), list(run.ranks)).row(0)[0] == "input-pipeline"
    assert set(idle_by_cause(run).filter(rank=1)["cause"]) >= {"host-sync"}
    assert "input-pipeline" not in set(idle_by_cause(run)["cause"])
