"""Turns of micro-batches, told by thread and messages, in the order of launches (µs)."""

from __future__ import annotations

import pytest

from tracekit.derive.micro_batches import turns

FORWARD, BACKWARD = 1, 2


def step(trace, *events, number=1):
    """A step whose `events` run in a row, launched in that order.

    An event is (thread, µs[, kernel]), or "message".
    """
    begins = 1_000 * number
    trace.step(number, begins, 1_000)
    for position, event in enumerate(events):
        launched = (1_000 * number + position, 0.5)
        if event == "message":
            trace.collective(begins, 5, "send", launched=launched, members=[0, 1])
            begins += 5
        else:
            thread, dur, *kernel = event
            trace.kernel(begins, dur, *kernel, launched=launched, thread=thread)
            begins += dur
    return trace


def rows(run):
    found = turns(run, 0).select("step", "is_forward", "micro_batch", "compute_ns").collect()
    return found.rows()


def test_one_forward_and_one_backward(make_run, trace):
    step(trace, *["message", (FORWARD, 10), "message", (BACKWARD, 20), "message"] * 3)
    assert rows(make_run(trace)) == [
        (1, False, 0, 20_000),
        (1, False, 1, 20_000),
        (1, False, 2, 20_000),
        (1, True, 0, 10_000),
        (1, True, 1, 10_000),
        (1, True, 2, 10_000),
    ]


def test_all_forward_and_then_all_backward(make_run, trace):
    step(trace, *[(FORWARD, 10), "message"] * 2, *["message", (BACKWARD, 20)] * 2)
    assert [row[1:] for row in rows(make_run(trace))] == [
        (False, 0, 20_000),
        (False, 1, 20_000),
        (True, 0, 10_000),
        (True, 1, 10_000),
    ]


def test_kernels_of_one_turn_are_summed(make_run, trace):
    step(trace, "message", (FORWARD, 10), (FORWARD, 7), "message", (FORWARD, 12))
    assert rows(make_run(trace)) == [(1, True, 0, 17_000), (1, True, 1, 12_000)]


def test_a_change_of_thread_without_a_message_ends_a_turn(make_run, trace):
    step(trace, (FORWARD, 10), (BACKWARD, 20))
    assert rows(make_run(trace)) == [(1, False, 0, 20_000), (1, True, 0, 10_000)]


def test_the_optimizer_and_other_communication_are_no_turn(make_run, trace):
    step(trace, (FORWARD, 10), (BACKWARD, 20), "message", (FORWARD, 30, "multi_tensor_apply"))
    trace.collective(1_100, 5, "all_reduce", launched=(1_000.7, 0.1))
    assert rows(make_run(trace)) == [(1, False, 0, 20_000), (1, True, 0, 10_000)]


@pytest.mark.parametrize(("dur", "n_turns"), [(10, 4), (9, 3)])
def test_what_is_shorter_than_a_tenth_of_the_usual_turn_is_none(make_run, trace, dur, n_turns):
    step(trace, *[(FORWARD, 100), "message"] * 3, (FORWARD, dur))
    assert len(rows(make_run(trace))) == n_turns


def test_a_message_of_another_device_ends_no_turn(make_run, trace):
    step(trace, (FORWARD, 10), (FORWARD, 10))
    # Begins with the first kernel of device 0, in a stream of the same number.
    trace.collective(1_000, 5, "send", launched=(1_900, 0.5), members=[0, 1], device=1, stream=7)
    assert rows(make_run(trace)) == [(1, True, 0, 20_000)]


def test_turns_are_numbered_in_each_step(make_run, trace):
    for number in (1, 2):
        step(trace, (FORWARD, 10), "message", (FORWARD, 10), number=number)
    assert [row[:3] for row in rows(make_run(trace))] == [
        (1, True, 0),
        (1, True, 1),
        (2, True, 0),
        (2, True, 1),
    ]


def test_kernels_without_a_launch_make_no_turn(make_run, trace):
    step(trace, (FORWARD, 10)).kernel(1_200, 50)
    assert rows(make_run(trace)) == [(1, True, 0, 10_000)]


def test_without_marks_or_events_there_are_none(make_run, trace, runs):
    assert rows(make_run(runs.Trace())) == []
    assert rows(make_run(trace.step(1, 0, 100).op(0, 10))) == [(1, True, 0, 10_000)]
