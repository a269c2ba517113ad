"""The simulator, on programs small enough to time by hand.

A launch call takes call_ns on the thread; its work starts LATENCY_NS = 2 µs after the call's end on
an idle stream, else GAP_NS = 1.6 µs after the work before it.
"""

from __future__ import annotations

import pytest

from tracekit.sample_traces.simulator.engine import QUEUE, simulate
from tracekit.sample_traces.simulator.operations import (
    Await,
    Begin,
    Collective,
    Copy,
    End,
    Graph,
    Group,
    HostWork,
    Kernel,
    Message,
    Signal,
    StreamWait,
    Synchronize,
)

PAIR = Group(name="0", purpose="pair", members=(0, 1))


def spans(events, kind, *, on_device=True):
    """(start, end) in µs of the events of one kind, on the device or on the host."""
    return [
        (event.start_ns / 1000, event.end_ns / 1000)
        for event in events
        if isinstance(event.operation, kind) and (event.stream is not None) == on_device
    ]


def kernel(us, name="k", **more):
    return Kernel(name=name, dur_ns=us * 1000, call_ns=1_000, **more)


def test_kernels_of_a_stream_run_one_after_the_other():
    (events,) = simulate({0: {1: [kernel(10), kernel(10)]}}).values()
    # calls end at 1 and 2 µs; the first kernel starts at 1 + 2, the second after the first
    assert spans(events, Kernel) == [(3, 13), (14.6, 24.6)]


def test_streams_run_beside_each_other():
    (events,) = simulate({0: {1: [kernel(10), kernel(10, stream=8)]}}).values()
    assert spans(events, Kernel) == [(3, 13), (4, 14)]


def test_a_stream_waits_for_what_was_queued_on_another():
    wait = StreamWait(stream=8, on_stream=7, call_ns=1_000)
    (events,) = simulate({0: {1: [kernel(10), wait, kernel(5, stream=8)]}}).values()
    assert spans(events, Kernel) == [(3, 13), (14.6, 19.6)]


def test_a_synchronising_call_holds_its_thread_until_the_device_is_done():
    (events,) = simulate({0: {1: [kernel(10), Synchronize(), kernel(5)]}}).values()
    assert spans(events, Synchronize, on_device=False) == [(1, 14)]  # 13 and 1 µs to return
    assert spans(events, Kernel) == [(3, 13), (17, 22)]  # called from 14 to 15


def test_no_member_leaves_a_collective_before_all_have_entered():
    reduce = Collective(
        group=PAIR, operation="all_reduce", size_bytes=8, transfer_ns=5_000, call_ns=1_000
    )
    late = HostWork(dur_ns=100_000)
    both = simulate({0: {1: [reduce]}, 1: {1: [late, reduce]}})
    assert spans(both[0], Collective) == [(3, 108)]  # enters at 3, waits for 103, 5 µs of transfer
    assert spans(both[1], Collective) == [(103, 108)]


def test_a_receiver_waits_for_its_sender():
    def message(*, peer, is_send):
        return Message(
            group=PAIR,
            peer=peer,
            is_send=is_send,
            size_bytes=8,
            transfer_ns=2_000,
            stream=9,
            call_ns=1_000,
        )

    both = simulate(
        {
            0: {1: [HostWork(dur_ns=50_000), message(peer=1, is_send=True)]},
            1: {1: [message(peer=0, is_send=False)]},
        }
    )
    assert spans(both[1], Message) == [(3, 55)]  # the send enters at 53
    assert spans(both[0], Message) == [(53, 55)]


def test_a_copy_from_pageable_memory_holds_its_thread():
    copy = Copy(kind="HtoD", size_bytes=8, dur_ns=20_000, call_ns=1_000, is_pinned=False)
    (events,) = simulate({0: {1: [copy, kernel(1)]}}).values()
    assert spans(events, Copy) == [(3, 23)]
    assert spans(events, Copy, on_device=False) == [(0, 23)]
    assert spans(events, Kernel) == [(26, 27)]  # called from 23 to 24


def test_a_graph_is_one_call_and_its_kernels_follow_each_other():
    graph = Graph(kernels=(kernel(10), kernel(5)), call_ns=4_000)
    (events,) = simulate({0: {1: [graph]}}).values()
    assert spans(events, Graph, on_device=False) == [(0, 4)]
    assert spans(events, Kernel) == [(6, 16), (17.6, 22.6)]
    assert {event.correlation for event in events} == {1}


def test_a_full_queue_holds_the_host_until_there_is_room():
    (events,) = simulate({0: {1: [kernel(10_000)] * (QUEUE + 2)}}).values()
    calls = spans(events, Kernel, on_device=False)
    ends = [end for _, end in spans(events, Kernel)]
    assert calls[QUEUE - 1] == (QUEUE - 1, QUEUE)
    assert calls[QUEUE] == (QUEUE, pytest.approx(ends[0]))
    assert calls[QUEUE + 1] == (pytest.approx(ends[0]), pytest.approx(ends[1]))


def test_messages_of_different_tags_do_not_meet():
    def message(peer, tag, stream, *, is_send):
        return Message(
            group=PAIR,
            peer=peer,
            is_send=is_send,
            tag=tag,
            size_bytes=8,
            transfer_ns=1_000,
            stream=stream,
        )

    sends = [message(1, tag, stream, is_send=True) for tag, stream in (("a", 8), ("b", 9))]
    takes = [message(0, tag, stream, is_send=False) for tag, stream in (("b", 9), ("a", 8))]
    both = simulate(
        {0: {1: sends}, 1: {1: takes}}
    )  # the other way round, and nobody waits for ever
    assert len(spans(both[1], Message)) == 2


def test_threads_hand_over_by_tokens():
    main = [HostWork(dur_ns=10_000), Signal("go"), Await("done"), kernel(1)]
    other = [Await("go"), HostWork(dur_ns=30_000), Signal("done")]
    (events,) = simulate({0: {1: main, 2: other}}).values()
    assert spans(events, Kernel) == [(43, 44)]  # 10 + 30, a call of 1 and 2 µs of latency


def test_spans_enclose_what_happens_in_them():
    program = [Begin(name="outer"), HostWork(dur_ns=5_000), kernel(1), End()]
    (events,) = simulate({0: {1: program}}).values()
    assert spans(events, Begin, on_device=False) == [(0, 6)]


def test_ranks_that_wait_for_ever_are_named():
    reduce = Collective(group=PAIR, operation="all_reduce", size_bytes=8, transfer_ns=1)
    with pytest.raises(ValueError, match="rank 0, thread 1 waits for ever"):
        simulate({0: {1: [reduce, Synchronize()]}, 1: {1: []}})
