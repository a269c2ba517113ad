"""The simulator: host threads launch, streams run in order, events and collectives wait.

Every time follows from others by addition and maximum, so nothing is stepped through: threads and
streams advance as far as their dependencies are known, in turn, until all are done. Time is exact
integer nanoseconds on one true clock; what clocks of hosts show is the writer's business.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field

from tracekit.sample_traces.simulator.operations import (
    Await,
    Begin,
    Collective,
    Copy,
    End,
    Graph,
    HostWork,
    Kernel,
    Message,
    Operation,
    Program,
    Signal,
    StreamWait,
    Synchronize,
)

LATENCY_NS = 2_000
"""From the end of a launch call to the start of its kernel on an idle stream."""
GAP_NS = 1_600
"""Between the ends of what a kernel waits for on the device and its start (`docs/simulator.md`)."""
QUEUE = 1_022
"""Launches that fit into a stream's queue: one more holds the host until the first of them ends."""


@dataclass(slots=True)
class Event:
    """Something that happened on a rank: on a thread of the host, or on a stream of the device."""

    start_ns: int
    end_ns: int
    operation: Operation
    thread: int
    stream: int | None = None
    correlation: int = 0


@dataclass(slots=True)
class _Queued:
    """Device work in a stream, with when its launch ended and, for a wait, what it waits for."""

    operation: Operation
    ready_ns: int
    correlation: int
    thread: int
    after: tuple[int, int] | None = None


@dataclass(slots=True)
class _Rank:
    """State of one rank: cursors and clocks of threads, queues and clocks of streams."""

    program: Program
    cursor: dict[int, int] = field(default_factory=dict)
    now_ns: dict[int, int] = field(default_factory=dict)
    spans: dict[int, list[tuple[Begin, int]]] = field(default_factory=dict)
    queues: dict[int, deque[_Queued]] = field(default_factory=lambda: defaultdict(deque))
    free_ns: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    n_queued: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    n_done: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    ends_ns: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    tokens: dict[str, int] = field(default_factory=dict)
    n_calls: dict[tuple[object, ...], int] = field(default_factory=lambda: defaultdict(int))
    correlation: int = 0
    events: list[Event] = field(default_factory=list)
    blocked: dict[int, tuple[int, int]] = field(default_factory=dict)


@dataclass(slots=True)
class _Meeting:
    """Members that have entered one instance of a collective or message, and when."""

    entered_ns: dict[int, int] = field(default_factory=dict)
    n_members: int = 0


def simulate(programs: dict[int, Program]) -> dict[int, list[Event]]:
    """Run the programs of all ranks to their end; returns the events of each rank, by start.

    Raises:
        ValueError: ranks wait for each other and none can go on.
    """
    ranks = {rank: _Rank(program) for rank, program in programs.items()}
    for state in ranks.values():
        for thread in state.program:
            state.cursor[thread], state.now_ns[thread], state.spans[thread] = 0, 0, []
    meetings: dict[tuple[object, ...], _Meeting] = defaultdict(_Meeting)
    moved = True
    while moved:
        moved = False
        for rank, state in ranks.items():
            for thread in state.program:
                moved |= _advance_thread(state, thread)
            for stream in list(state.queues):
                moved |= _advance_stream(rank, state, stream, meetings)
    for rank, state in ranks.items():
        _check_done(rank, state)
    return {
        rank: sorted(state.events, key=lambda event: (event.start_ns, -event.end_ns))
        for rank, state in ranks.items()
    }


def _check_done(rank: int, state: _Rank) -> None:
    for thread, operations in state.program.items():
        if state.cursor[thread] < len(operations):
            stuck = operations[state.cursor[thread]]
            raise ValueError(f"rank {rank}, thread {thread} waits for ever at {stuck}")
    if any(state.queues.values()):
        raise ValueError(f"rank {rank} has work on the device that never starts")


def _advance_thread(state: _Rank, thread: int) -> bool:
    """Run a thread until it waits for something that is not known yet; whether it moved."""
    operations = state.program[thread]
    first = state.cursor[thread]
    while state.cursor[thread] < len(operations):
        if not _call(state, thread, operations[state.cursor[thread]]):
            break
        state.cursor[thread] += 1
    return state.cursor[thread] > first


def _call(state: _Rank, thread: int, operation: Operation) -> bool:
    """Do one operation on the host; False where it has to wait."""
    now_ns = state.now_ns[thread]
    match operation:
        case Begin():
            state.spans[thread].append((operation, now_ns))
        case End():
            begun, start_ns = state.spans[thread].pop()
            state.events.append(Event(start_ns, now_ns, begun, thread))
        case HostWork():
            state.now_ns[thread] = now_ns + operation.dur_ns
            state.events.append(Event(now_ns, now_ns + operation.dur_ns, operation, thread))
        case Signal():
            state.tokens[operation.token] = now_ns
        case Await():
            if operation.token not in state.tokens:
                return False
            state.now_ns[thread] = max(now_ns, state.tokens.pop(operation.token))
        case Synchronize():
            return _synchronize(state, thread, operation)
        case Copy() if not operation.is_pinned:
            return _blocking_copy(state, thread, operation)
        case Kernel() | Graph() | Copy() | Collective() | Message() | StreamWait():
            return _enqueue(state, thread, operation)
    return True


def _enqueue(
    state: _Rank, thread: int, operation: Kernel | Graph | Copy | Collective | Message | StreamWait
) -> bool:
    """Launch: the call takes its time on the thread, then the work waits in its stream.

    False where the queue is full and it is not known until when.
    """
    start_ns = state.now_ns[thread]
    first = state.n_queued[operation.stream] - QUEUE
    if first >= state.n_done[operation.stream]:
        return False
    room_ns = state.ends_ns[operation.stream][first] if first >= 0 else 0
    end_ns = max(start_ns + operation.call_ns, room_ns)
    state.now_ns[thread] = end_ns
    state.correlation += 1
    after = None
    if isinstance(operation, StreamWait):
        after = (operation.on_stream, state.n_queued[operation.on_stream])
    state.events.append(Event(start_ns, end_ns, operation, thread, correlation=state.correlation))
    work = operation.kernels if isinstance(operation, Graph) else (operation,)
    state.queues[operation.stream].extend(
        _Queued(each, end_ns, state.correlation, thread, after) for each in work
    )
    state.n_queued[operation.stream] += len(work)
    return True


def _synchronize(state: _Rank, thread: int, operation: Synchronize) -> bool:
    """Hold the thread until what was queued when the call began has ended."""
    streams = [operation.stream] if operation.stream is not None else list(state.n_queued)
    if any(state.n_done[stream] < state.n_queued[stream] for stream in streams):
        return False
    start_ns = state.now_ns[thread]
    end_ns = max([start_ns, *(state.free_ns[stream] for stream in streams)]) + operation.dur_ns
    state.now_ns[thread] = end_ns
    state.events.append(Event(start_ns, end_ns, operation, thread))
    return True


def _blocking_copy(state: _Rank, thread: int, operation: Copy) -> bool:
    """A copy from pageable memory: queued once, then the call lasts until the copy has ended."""
    if thread not in state.blocked:
        start_ns = state.now_ns[thread]
        if not _enqueue(state, thread, operation):
            return False
        state.events.pop()
        state.blocked[thread] = (start_ns, state.n_queued[operation.stream])
        return False
    start_ns, number = state.blocked[thread]
    if state.n_done[operation.stream] < number:
        return False
    del state.blocked[thread]
    end_ns = max(state.now_ns[thread], state.ends_ns[operation.stream][number - 1])
    state.now_ns[thread] = end_ns
    correlation = state.correlation
    state.events.append(Event(start_ns, end_ns, operation, thread, correlation=correlation))
    return True


def _advance_stream(
    rank: int, state: _Rank, stream: int, meetings: dict[tuple[object, ...], _Meeting]
) -> bool:
    """Start and end work at the head of a stream as far as it is known; whether it moved."""
    queue = state.queues[stream]
    moved = False
    while queue:
        end_ns = _end_ns(rank, state, stream, queue[0], meetings)
        if end_ns is None:
            break
        queue.popleft()
        state.free_ns[stream] = end_ns
        state.n_done[stream] += 1
        state.ends_ns[stream].append(end_ns)
        moved = True
    return moved


def _end_ns(
    rank: int,
    state: _Rank,
    stream: int,
    head: _Queued,
    meetings: dict[tuple[object, ...], _Meeting],
) -> int | None:
    """When the work at the head of a stream ends; None while that is not known."""
    is_first = state.n_done[stream] == 0
    free_ns = state.free_ns[stream] + (0 if is_first else GAP_NS)
    start_ns = max(free_ns, head.ready_ns + LATENCY_NS)
    operation = head.operation
    if isinstance(operation, StreamWait):
        on_stream, number = head.after or (stream, 0)
        if state.n_done[on_stream] < number:
            return None
        waited_ns = state.ends_ns[on_stream][number - 1] if number else 0
        return max(state.free_ns[stream], waited_ns)
    if isinstance(operation, Collective | Message):
        met_ns = _met_ns(rank, state, operation, start_ns, meetings)
        if met_ns is None:
            return None
        end_ns = met_ns + operation.transfer_ns
    else:
        end_ns = start_ns + operation.dur_ns  # type: ignore[union-attr]
    state.events.append(Event(start_ns, end_ns, operation, head.thread, stream, head.correlation))
    return end_ns


def _met_ns(
    rank: int,
    state: _Rank,
    operation: Collective | Message,
    start_ns: int,
    meetings: dict[tuple[object, ...], _Meeting],
) -> int | None:
    """When the last member entered this instance; None while one has not."""
    if isinstance(operation, Collective):
        place: tuple[object, ...] = (operation.group.name, operation.group.members)
        n_members = len(operation.group.members)
    else:
        sender = rank if operation.is_send else operation.peer
        receiver = operation.peer if operation.is_send else rank
        place, n_members = (operation.group.name, sender, receiver, operation.tag), 2
    number = state.n_calls[place]
    meeting = meetings[*place, number]
    meeting.entered_ns[rank] = start_ns
    if len(meeting.entered_ns) < n_members:
        return None
    state.n_calls[place] = number + 1
    return max(meeting.entered_ns.values())
