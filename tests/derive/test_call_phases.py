"""Communication by phase of the step: who launched it, and inside which mark."""

from __future__ import annotations

import pytest

from tracekit.derive.call_phases import phases

STEP = 1_000


def job(runs, *, backward_thread=2):
    """Steps with an all-gather forward, two reductions backward and one all-gather in the update.

    Each takes 50 µs; compute hides half of the second reduction.
    """
    traces = {rank: runs.Trace() for rank in (0, 1)}
    for number in range(5):
        at = STEP * number
        for trace in traces.values():
            trace.step(number, at, STEP)
            trace.annotation(at + 600, 100, "Optimizer.step#AdamW.step")
            trace.kernel(at, 90, launched=at)
            trace.kernel(at + 200, 90, launched=at + 100, thread=backward_thread)
            trace.kernel(at + 450, 25, launched=at + 140, thread=backward_thread)
            calls = (
                ("all_gather", 100, at + 10, 1),
                ("all_reduce", 300, at + 110, backward_thread),
                ("all_reduce", 450, at + 120, backward_thread),
                ("all_gather", 700, at + 610, 1),
            )
            for i, (operation, start, launched, thread) in enumerate(calls):
                trace.collective(
                    at + start,
                    50,
                    operation,
                    launched=launched,
                    thread=thread,
                    members=[0, 1],
                    sequence=4 * number + i,
                )
    return traces


def test_forward_backward_and_the_optimizer(make_run, runs):
    rows = phases(make_run(job(runs))).select(
        "phase", "operation", "n_calls", "step_ns", "exposed_transfer_ns", "hidden_ns"
    )
    assert rows.rows() == [
        ("forward", "all_gather", 1.0, 50_000.0, 50_000.0, 0.0),
        ("backward", "all_reduce", 2.0, 100_000.0, 75_000.0, 25_000.0),
        ("optimizer", "all_gather", 1.0, 50_000.0, 50_000.0, 0.0),
    ]


def test_with_one_thread_forward_and_backward_are_not_told_apart(make_run, runs):
    rows = phases(make_run(job(runs, backward_thread=1)))
    assert rows["phase"].to_list() == ["optimizer", None, None]
    assert rows["step_ns"].sum() == pytest.approx(200_000)


def test_without_communication_there_is_nothing(make_run, runs):
    trace = runs.Trace().step(0, 0, STEP).kernel(0, 100, launched=0)
    assert phases(make_run(trace)).is_empty()
