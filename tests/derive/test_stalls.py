"""Stalls: gaps that the host owes, with the latency behind them, and what the job gains (µs)."""

from __future__ import annotations

import polars as pl
import pytest

from tracekit.derive.profiler_cost import profiler_ns
from tracekit.derive.stalls import by_call, by_rank, removable_ns, stalled, stalls
from tracekit.findings import Range

ALL = pl.lit(value=True)


def steps(trace, *gaps, step_us=1_000, n_steps=5):
    """In each step the device works but for `gaps`: (start, length), launched 5 µs before its end.

    The call takes 2 µs, so 3 µs of a gap are launch latency.
    """
    for step in range(1, n_steps + 1):
        at = step_us * step
        trace.step(step, at - 10, step_us)
        begins, launch = at, at - 5
        for start, length in gaps:
            trace.kernel(begins, at + start - begins, launched=(launch, 2))
            begins = at + start + length
            launch = begins - 5
        trace.kernel(begins, at + step_us - begins, launched=(launch, 2))
    return trace


def test_a_stall_holds_the_latency_behind_the_host_part(make_run, trace):
    run = make_run(steps(trace, (400, 100)))
    row = stalls(run, 0).collect().row(0, named=True)
    assert (row["start_ns"], row["host_ns"], row["stall_ns"]) == (1_400_000, 97_000, 100_000)
    assert (row["class"], row["is_drained"]) == ("host-other", False)


@pytest.mark.parametrize(("gap", "name"), [(10_004, "host-other"), (10_002, "host-sync")])
def test_a_pause_behind_a_call_that_drained_the_queue_is_no_part_of_it(make_run, trace, gap, name):
    run_trace = steps(trace, (400, gap), step_us=20_000)
    for step in range(1, 6):  # a call waits for the device until the gap begins
        run_trace.call(20_000 * step + 10, 391, "cudaStreamSynchronize", role="sync")
    row = stalls(make_run(run_trace), 0).collect().row(0, named=True)
    assert (row["class"], row["is_drained"]) == (name, True)


def test_sums_of_each_averaged_step_with_zeros_where_there_is_none(make_run, trace):
    run = make_run(steps(trace, (200, 50), (600, 100)))
    rows = stalled(run, pl.col("host_ns") > 50_000)
    assert rows["step"].to_list() == [2, 3, 4]  # neither the first nor the cut one
    assert rows["stall_ns"].to_list() == [100_000] * 3
    assert rows["n_stalls"].to_list() == [1] * 3
    assert stalled(run, pl.lit(value=False))["stall_ns"].to_list() == [0] * 3
    assert by_rank(stalled(run, ALL)).row(0)[2:] == (1_000_000, 150_000, 0.15, 2)


def test_a_batch_waited_for_before_a_window_belongs_to_the_step_of_its_mark(make_run, trace):
    for step in range(1, 6):  # the mark begins 300 µs before the step's first kernel
        trace.step(step, 1_000 * step - 300, 1_000)
        trace.kernel(1_000 * step, 600, launched=(1_000 * step - 5, 2))
    rows = stalls(make_run(trace), 0).select("step", "host_step").collect().rows()
    assert rows == [(1, 2), (2, 3), (3, 4), (4, 5)]


@pytest.mark.parametrize(
    ("host", "wait", "profiler", "low", "high"),
    [
        ([100, 40], [0, 0], [0, 0], 100, 110),  # the greatest of both ranks
        ([100, 40], [70, 0], [0, 0], 40, 110),  # rank 0 waits for others 70: sure are 30, and 40
        ([100, 40], [100, 50], [0, 0], 0, 110),
        ([100, 40], [0, 0], [80, 0], 40, 110),
    ],
)
def test_the_gain_lies_between_what_waiting_leaves_and_the_greatest_stall(
    host, wait, profiler, low, high
):
    rows = pl.DataFrame(
        {
            "rank": [0, 1],
            "step": [1, 1],
            "pipeline": ["rank 0", "rank 1"],
            "sure_ns": [each - own for each, own in zip(host, profiler, strict=True)],
            "wait_ns": wait,
            "stall_ns": [each + 10 for each in host],
        }
    )
    assert removable_ns(rows) == Range(low, high)


def test_the_gain_is_the_mean_over_steps_even_where_ranks_take_turns():
    rows = pl.DataFrame(
        {
            "rank": [0, 1, 0, 1],
            "step": [1, 1, 2, 2],
            "pipeline": ["rank 0", "rank 1"] * 2,
            "sure_ns": [100, 0, 0, 60],
            "wait_ns": [0, 100, 60, 0],
            "stall_ns": [100, 0, 0, 60],
        }
    )
    assert removable_ns(rows) == Range(80, 80)


def test_no_rows_gain_nothing():
    columns = ("rank", "step", "sure_ns", "wait_ns", "stall_ns")
    schema = {"pipeline": pl.String} | dict.fromkeys(columns, pl.Int64)
    assert removable_ns(pl.DataFrame(schema=schema)) == Range(0, 0)


def test_stalls_of_the_stages_of_a_pipeline_may_add_up():
    rows = pl.DataFrame(
        {
            "rank": [0, 1, 2],
            "step": [1, 1, 1],
            "pipeline": ["pp0", "pp0", "rank 2"],
            "sure_ns": [100, 60, 130],
            "wait_ns": [0, 0, 0],
            "stall_ns": [100, 60, 130],
        }
    )
    assert removable_ns(rows) == Range(130, 160)


def test_stalls_by_call_are_means_over_ranks_and_steps(make_run, trace):
    steps(trace, (400, 100))
    for step in (2, 3):
        trace.op(1_000 * step + 400, 90, "aten::nonzero")
    rows = by_call(make_run(trace), ALL).rows()
    assert rows == [
        ("aten::nonzero", pytest.approx(2 / 3), pytest.approx(200_000 / 3), 100_000),
        ("cudaLaunchKernel", pytest.approx(1 / 3), pytest.approx(100_000 / 3), 100_000),
    ]


def test_recording_counts_by_the_share_of_each_operator_inside_a_part(make_run, trace):
    trace.kernel(0, 10).op(100, 100).op(120, 20).op(400, 50)
    run = make_run(trace)
    spans = pl.DataFrame(
        {"start_ns": [0, 150_000, 130_000, 0], "end_ns": [1_000_000, 200_000, 140_000, 50_000]}
    )
    # all three; half of the first; a tenth of the first and half of the second; none
    expected = [3 * 3_800, 0.5 * 3_800, 0.6 * 3_800, 0]
    assert profiler_ns(run, 0, spans).to_list() == [pytest.approx(each, abs=1) for each in expected]


def test_recording_takes_at_most_the_whole_part(make_run, trace):
    trace.kernel(0, 10)
    for _ in range(10):
        trace.op(100, 10)
    spans = pl.DataFrame({"start_ns": [100_000], "end_ns": [110_000]})
    assert profiler_ns(make_run(trace), 0, spans).to_list() == [10_000]


def received(trace, *, operation="recv", members=(0, 1)):
    """In each step 300 µs of idle time, then communication for 400 µs, then compute."""
    for step in range(1, 6):
        at = 1_000 * step
        trace.step(step, at - 10, 1_000)
        trace.kernel(at, 300, launched=(at - 5, 2))
        values = {"source_rank": 1} if operation == "recv" else {}
        trace.collective(
            at + 600, 100, operation, launched=(at + 595, 2), members=list(members), **values
        )
        trace.kernel(at + 700, 300, launched=(at + 606, 2))
    return trace


def test_a_message_right_behind_a_stall_may_wait_as_long_instead(make_run, trace):
    (row,) = stalled(make_run(received(trace)), ALL).filter(step=2).to_dicts()
    assert (row["host_ns"], row["stall_ns"]) == (297_000, 300_000)
    assert row["sure_ns"] == 297_000 - 100_000
    assert row["wait_ns"] == 0  # the wait in it moves with the stage


def test_other_communication_that_could_not_be_split_may_be_waiting(make_run, trace):
    run = make_run(received(trace, operation="broadcast"))
    assert stalled(run, ALL)["wait_ns"].to_list() == [100_000] * 3
