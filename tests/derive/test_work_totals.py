"""Compute by class of work, and how unequal it is over the ranks of a stage (µs)."""

from __future__ import annotations

import polars as pl

from tracekit.derive.work_classes import ATTENTION, LINEAR
from tracekit.derive.work_totals import unevenness, work_totals


def steps(trace, *kernels, n_steps=4, device=0):
    """Steps of 1,000 µs with (name, µs) in a row."""
    for step in range(1, n_steps + 1):
        begins = 1_000 * step
        if not device:
            trace.step(step, begins, 1_000)
        for number, (name, us) in enumerate(kernels):
            trace.kernel(begins, us, name, launched=(1_000 * step + number, 0.5), device=device)
            begins += us
    return trace


def test_kernels_are_summed_by_class_over_averaged_steps(make_run, runs):
    traces = {
        4: steps(runs.Trace(), ("gemm", 10), ("flash_fwd", 30), ("nvjet", 5)),
        9: steps(runs.Trace(), ("gemm", 20)).collective(2_500, 90),
    }
    assert work_totals(make_run(traces)).rows() == [
        row
        for rank, classes in (
            (4, [(ATTENTION, 1, 30_000), (LINEAR, 2, 15_000)]),
            (9, [(LINEAR, 1, 20_000)]),
        )
        for step in (2, 3)
        for row in ((rank, 0, step, *each) for each in classes)
    ]


def test_several_devices_of_a_rank_are_summed_and_idle_ones_left_out(make_run, trace):
    steps(steps(trace, ("gemm", 100)), ("gemm", 50), device=1)
    steps(trace, ("gemm", 1), device=2)  # 1 % of what the busiest does
    rows = work_totals(make_run(trace))
    assert rows["total_ns"].to_list() == [150_000, 150_000]


def test_unevenness_counts_a_class_that_a_rank_lacks_as_zero():
    columns = ("rank", "stage", "step", "class", "total_ns")
    totals = pl.DataFrame(
        [
            (0, 0, 1, LINEAR, 30),
            (1, 0, 1, LINEAR, 30),
            (2, 0, 1, LINEAR, 60),
            (1, 0, 1, ATTENTION, 9),
            (5, 1, 1, LINEAR, 70),
        ],
        schema=list(columns),
        orient="row",
    )
    assert unevenness(totals).rows() == [
        (0, 1, ATTENTION, 3, 0, 9, 1, 3),
        (0, 1, LINEAR, 40, 30, 60, 2, 3),
        (1, 1, LINEAR, 70, 70, 70, 5, 1),
    ]


def test_of_equal_ranks_the_lower_has_most():
    totals = pl.DataFrame(
        {"rank": [7, 3], "stage": [0, 0], "step": [1, 1], "class": [LINEAR] * 2, "total_ns": [5, 5]}
    )
    assert unevenness(totals)["worst"].to_list() == [3]


def test_without_compute_there_is_nothing(make_run, runs):
    run = make_run({0: runs.Trace(), 1: runs.Trace()})
    assert work_totals(run).is_empty()
    assert unevenness(work_totals(run)).is_empty()
    alone = make_run({0: runs.Trace().collective(0, 10), 1: runs.Trace().collective(0, 10)})
    assert work_totals(alone).is_empty()
