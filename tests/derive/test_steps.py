"""Step windows of section 1 of the definitions, on traces of a few kernels (µs)."""

from __future__ import annotations

import polars as pl

from tracekit.derive.averages import averages
from tracekit.derive.steps import PATTERN, WHOLE, windows


def windows_us(run, rank=0):
    """(device, step, start, end, is_complete, is_first) in µs."""
    rows = windows(run, rank).collect()
    us = [pl.col(name) // 1000 for name in ("start_ns", "end_ns")]
    return rows.select("device", "step", *us, "is_complete", "is_first").rows()


def sources(run):
    return windows(run, 0).collect()["source"].unique().to_list()


def test_a_window_runs_from_the_first_event_of_a_step_to_the_first_of_the_next(make_run, trace):
    for number, start in ((1, 0), (2, 100), (3, 200)):
        trace.step(number, start, 100)
        # launched 10 µs into the step, runs 30 µs later, beyond the end of the mark
        trace.kernel(start + 40, 70, launched=start + 10)
    assert windows_us(make_run(trace)) == [
        (0, 1, 40, 140, True, True),
        (0, 2, 140, 240, True, False),
        (0, 3, 240, 310, False, False),  # ends at its last event: cut
    ]


def test_a_launch_on_any_thread_belongs_to_the_mark_that_covers_it(make_run, trace):
    trace.step(1, 0, 100).step(2, 100, 100)
    trace.kernel(20, 10, launched=10)
    trace.kernel(50, 10, launched=40, thread=2)  # autograd's thread
    trace.kernel(130, 10, launched=120, thread=2)
    assert windows_us(make_run(trace)) == [
        (0, 1, 20, 130, True, True),
        (0, 2, 130, 140, False, False),
    ]


def test_what_precedes_the_first_window_is_no_step(make_run, trace):
    trace.step(5, 100, 100)
    trace.kernel(10, 50, launched=5)  # launched before the first mark
    trace.kernel(120, 30, launched=110)
    assert windows_us(make_run(trace)) == [(0, 5, 120, 150, False, True)]


def test_an_event_without_a_launch_never_opens_a_window(make_run, trace):
    trace.step(1, 0, 100).step(2, 100, 100)
    trace.kernel(5, 10)
    trace.kernel(30, 10, launched=20)
    trace.kernel(105, 10)  # starts in the window of step 1, whose end is the launch of step 2
    trace.kernel(150, 10, launched=140)
    assert windows_us(make_run(trace)) == [
        (0, 1, 30, 150, True, True),
        (0, 2, 150, 160, False, False),
    ]


def test_a_window_that_swallows_a_step_without_events_is_not_complete(make_run, trace):
    for number in (1, 2, 3, 4):
        trace.step(number, 100 * number, 100)
    for start in (100, 300, 400):  # step 2 launched nothing on the device
        trace.kernel(start + 20, 10, launched=start + 10)
    rows = windows_us(make_run(trace))
    assert [(step, is_complete) for _, step, _, _, is_complete, _ in rows] == [
        (1, False),
        (3, True),
        (4, False),
    ]


def test_marks_of_one_number_in_a_row_are_one_step(make_run, trace):
    trace.step(1, 0, 100).step(1, 10, 80)  # the same mark from two threads
    trace.step(2, 100, 100).step(3, 200, 100)
    for start in (0, 100, 200):
        trace.kernel(start + 40, 20, launched=start + 5)
        trace.kernel(start + 70, 20, launched=start + 95)  # behind the inner mark
    assert windows_us(make_run(trace)) == [
        (0, 1, 40, 140, True, True),
        (0, 2, 140, 240, True, False),
        (0, 3, 240, 290, False, False),
    ]


def test_numbers_that_count_anew_are_further_steps(make_run, trace):
    for place, number in enumerate((7, 8, 7, 8, 9)):  # a second loop, or a step done again
        trace.step(number, 100 * place, 100)
        trace.kernel(100 * place + 40, 20, launched=100 * place + 5)
    assert windows_us(make_run(trace)) == [
        (0, 7, 40, 140, True, True),
        (0, 8, 140, 240, True, False),
        (0, 9, 240, 340, True, False),
        (0, 10, 340, 440, True, False),
        (0, 11, 440, 460, False, False),
    ]


def test_a_run_whose_numbers_count_anew_is_averaged(make_run, runs):
    traces = {rank: runs.Trace() for rank in (0, 1)}
    for trace in traces.values():
        for place, number in enumerate((0, 1, 2, 0, 1, 2)):
            trace.step(number, 100 * place, 100)
            trace.kernel(100 * place + 40, 20, launched=100 * place + 5)
    assert averages(make_run(traces)).steps == (1, 2, 3, 4)


def test_each_device_has_its_own_windows(make_run, trace):
    trace.step(1, 0, 100).step(2, 100, 100)
    for device, delay in ((0, 20), (1, 50)):
        trace.kernel(delay, 10, launched=10, device=device)
        trace.kernel(100 + delay, 10, launched=110, device=device)
    assert windows_us(make_run(trace)) == [
        (0, 1, 20, 120, True, True),
        (0, 2, 120, 130, False, False),
        (1, 1, 50, 150, True, True),
        (1, 2, 150, 160, False, False),
    ]


def test_marks_that_exist_on_the_device_only_cut_by_the_events_start(make_run, trace):
    for number, start in ((1, 0), (2, 100)):
        trace.step(number, start, 100, source="ProfilerStep on the device")
        trace.kernel(start, 40)
    assert windows_us(make_run(trace)) == [
        (0, 1, 0, 100, True, True),
        (0, 2, 100, 140, False, False),
    ]


def test_annotations_that_count_are_marks_too(make_run, trace):
    for number in (7, 8):
        trace.step(number, 100 * number, 100, source="annotation")
        trace.kernel(100 * number + 20, 10, launched=100 * number)
    run = make_run(trace)
    assert [row[1] for row in windows_us(run)] == [7, 8]
    assert sources(run) == ["annotation"]


def steps_with_optimizer(trace, n_steps, n_layers=6, optimizer="multi_tensor_apply_kernel<Adam>"):
    """Each step: `n_layers` equal layers of two kernels, then the optimizer."""
    for step in range(n_steps):
        at = 1000 * step
        for layer in range(n_layers):
            trace.kernel(at + 20 * layer, 8, "gemm")
            trace.kernel(at + 20 * layer + 10, 8, "flash_fwd_kernel")
        trace.kernel(at + 20 * n_layers, 8, optimizer)
    return trace


def test_without_marks_the_optimizer_tells_the_steps(make_run, trace):
    run = make_run(steps_with_optimizer(trace, 4))
    rows = windows_us(run)
    assert sources(run) == [PATTERN]
    assert [row[2] for row in rows] == [120, 1120, 2120, 3120]  # the optimizer's first kernel
    assert [row[4] for row in rows] == [True, True, True, False]


def test_without_marks_and_optimizer_uploads_tell_the_steps(make_run, trace):
    for step in range(4):
        trace.copy(1000 * step, 5, "HtoD")
        for layer in range(10):
            trace.kernel(1000 * step + 10 + 20 * layer, 8)
    run = make_run(trace)
    assert sources(run) == [PATTERN]
    assert [row[2] for row in windows_us(run)] == [0, 1000, 2000, 3000]


def test_repeated_layers_are_not_taken_for_steps(make_run, trace):
    for layer in range(30):
        trace.kernel(100 * layer, 40, "gemm")
        trace.kernel(100 * layer + 50, 40, "flash_fwd_kernel")
    run = make_run(trace)
    assert sources(run) == [WHOLE]
    assert windows_us(run) == [(0, 0, 0, 2990, False, True)]


def test_an_optimizer_seen_twice_is_no_pattern(make_run, trace):
    assert sources(make_run(steps_with_optimizer(trace, 2))) == [WHOLE]


def test_pieces_of_unequal_size_are_no_steps(make_run, trace):
    at = 0
    for n_layers in (3, 20, 4, 30):
        for _ in range(n_layers):
            trace.kernel(at, 8)
            at += 10
        trace.kernel(at, 8, "multi_tensor_apply_kernel<Adam>")
        at += 10
    assert sources(make_run(trace)) == [WHOLE]


def test_a_rank_without_events_has_no_windows(make_run, trace):
    assert windows(make_run(trace), 0).collect().is_empty()
    trace.step(1, 0, 100)
    assert windows(make_run(trace), 0).collect().is_empty()
