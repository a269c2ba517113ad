"""What differs between a rank's mean step and its peers': kernels, copies, idle time (µs)."""

from __future__ import annotations

import polars as pl
import pytest

from tracekit.derive.averages import averages
from tracekit.derive.causes import cause_of, cause_of_lateness, cause_of_slowness
from tracekit.derive.idle_totals import idle_by_cause
from tracekit.derive.kernel_totals import differences
from tracekit.derive.lateness import compared_calls, late_calls
from tracekit.derive.why_late import why_late
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


def steps_of_collectives(runs, before, *, n_ranks=4, is_overlapped=False):
    """Five steps of 10 ms with two all-reduces each; all leave together, 50 µs after the last came.

    `before(rank, number)` lists what a rank does before each of them: kernels (name, µs, grid) or
    ("load", µs), during which its host loads data. With `is_overlapped` compute goes on under the
    first of the two.
    """
    traces = {rank: runs.Trace() for rank in range(n_ranks)}
    for step in range(1, 6):
        at = 10_000 * step
        for trace in traces.values():
            trace.step(step, at - 20, 10_000)
        begins = dict.fromkeys(traces, at)
        for number in range(2):
            ends = {}
            for rank, trace in traces.items():
                now = begins[rank]
                for what, dur, *grid in before(rank, number):
                    if what == "load":
                        trace.annotation(now, dur, "enumerate(DataLoader)#x.__next__")
                    else:
                        trace.kernel(now, dur, what, launched=now - 10)
                        trace.rows["kernels"][-1]["grid_blocks"] = grid[0]
                    now += dur
                ends[rank] = now
            leaves = max(ends.values()) + 50
            for rank, trace in traces.items():
                trace.collective(ends[rank], leaves - ends[rank], launched=ends[rank] - 10)
                if is_overlapped and number == 0:
                    trace.kernel(ends[rank], leaves - ends[rank] + 100, "under", launched=at - 10)
            begins = dict.fromkeys(traces, leaves + (100 if is_overlapped and number == 0 else 0))
    return traces


def why_of(run, rank):
    """Why a rank was late over its averaged steps, in µs a step by part; and the lateness."""
    late = late_calls(run).filter(pl.col("rank") == rank)
    steps = averages(run).steps
    late = late.filter(pl.col("step").is_in(list(steps)))
    why = why_late(run, late, compared_calls(run), len(steps))
    parts = {part: extra / 1000 for part, _, _, extra in why.parts.iter_rows() if extra}
    assert sum(parts.values()) == pytest.approx(why.late_ns / 1000)
    return parts, why


def test_the_parts_of_a_lateness_sum_to_it(make_run, runs):
    # 100 µs more of the same kernel, one kernel of 70 µs more, before the first; then 30 µs slower
    def before(rank, number):
        if rank != 3:
            return [("gemm", 500, 64)]
        return [("gemm", 530, 64)] if number else [("gemm", 600, 64), ("norm", 70, 64)]

    parts, why = why_of(make_run(steps_of_collectives(runs, before)), 3)
    assert parts == pytest.approx({SLOWER: 130, MORE: 70})
    assert (why.late_ns, why.ranks) == (200_000, (3,))
    assert set(why.peers) <= {0, 1, 2}


def test_a_rank_that_loads_longer_differs_in_the_loading(make_run, runs):
    def before(rank, number):
        return [("load", 300 if rank == 1 and number else 40), ("gemm", 500, 64)]

    parts, why = why_of(make_run(steps_of_collectives(runs, before)), 1)
    assert parts == {"input-pipeline": 260}  # in each step, before the second one
    assert why.parts["part"][0] == "input-pipeline"


def test_of_two_late_arrivals_without_a_meeting_between_the_latest_counts(make_run, runs):
    # Compute goes on under the first: 200 µs of delay show in both, and are counted once.
    def before(rank, number):
        return [("gemm", 700 if rank == 2 and number == 0 else 500, 64)]

    traces = steps_of_collectives(runs, before, is_overlapped=True)
    parts, why = why_of(make_run(traces), 2)
    assert why.late_ns <= 200_000
    assert SLOWER in parts


def test_lateness_that_was_there_at_the_start_is_inherited(make_run, runs):
    traces = steps_of_collectives(runs, lambda *_: [("gemm", 500, 64)])
    for row in traces[2].rows["collectives"][1::2]:  # leaves the first by 80 µs later than others
        row["start_ns"] += 80_000
        row["dur_ns"] -= 80_000
    for row in traces[2].rows["kernels"][1::2]:
        row["start_ns"] += 80_000
    run = make_run(traces)
    late = late_calls(run)
    assert set(late["rank"]) <= {2}


def test_ranks_late_together_are_nobodys_peers(make_run, runs):
    def before(rank, _number):
        return [("gemm", 700 if rank > 1 else 500, 64)]

    run = make_run(steps_of_collectives(runs, before))
    steps = averages(run).steps
    late = late_calls(run).filter(pl.col("step").is_in(list(steps)))
    why = why_late(run, late, compared_calls(run), len(steps))
    assert set(late["rank"]) == {2, 3}
    assert set(why.peers) <= {0, 1}
    assert why.late_ns == pytest.approx(2 * 200_000)  # against the peer, not against the median


def test_work_is_compared_by_class(make_run, runs):
    def before(rank, _number):
        return [("flash_fwd", 300 if rank == 1 else 100, 64), ("gemm", 500, 64)]

    _, why = why_of(make_run(steps_of_collectives(runs, before)), 1)
    by_class = {name: (own, peer) for name, own, peer in why.kinds.iter_rows()}
    assert by_class["attention"] == (600_000, 200_000)
    assert by_class["linear"] == (1_000_000, 1_000_000)


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
