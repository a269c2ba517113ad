"""What a simulated rank does: host calls in order on threads, device work in order on streams."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A communicator: its name, what it is for, and its global ranks in order."""

    name: str
    purpose: str
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """Launch a compute kernel: the call takes `call_ns` on the host, the kernel `dur_ns`."""

    name: str
    dur_ns: int
    stream: int = 7
    call_ns: int = 5_000
    n_blocks: int = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Start a copy. One from pageable memory holds the calling thread until it is done."""

    kind: str
    size_bytes: int
    dur_ns: int
    stream: int = 7
    call_ns: int = 6_000
    is_pinned: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """Start a collective: no member leaves before all have entered, then `transfer_ns` pass."""

    group: Group
    operation: str
    size_bytes: int
    transfer_ns: int
    stream: int = 20
    call_ns: int = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Send to or receive from a peer; both sides end together, `transfer_ns` after the later.

    Messages of one sender, receiver and tag meet in the order of the calls.
    """

    group: Group
    peer: int
    is_send: bool
    tag: str = ""
    size_bytes: int
    transfer_ns: int
    stream: int
    call_ns: int = 15_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWait:
    """Let a stream wait for all work queued on another one so far."""

    stream: int
    on_stream: int
    call_ns: int = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Launch a graph: one call of `call_ns`, then its kernels in order, all of one correlation."""

    kernels: tuple[Kernel, ...]
    stream: int = 7
    call_ns: int = 12_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Synchronize:
    """Hold the calling thread until a stream, or (None) the device, has nothing left to do.

    `call` is the runtime call that does so, `dur_ns` what it takes by itself.
    """

    stream: int | None = None
    call: str = ""
    dur_ns: int = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWork:
    """Keep the thread busy. `category` is cpu_op, annotation or runtime; None leaves no event."""

    dur_ns: int
    name: str = ""
    category: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Open a span (operator or annotation) on the thread; `End` closes the one opened last."""

    name: str
    category: str = "cpu_op"


@dataclass(frozen=True, slots=True)
class End:
    """Close the span opened last on the thread."""


@dataclass(frozen=True, slots=True)
class Signal:
    """Pass a token to whoever waits for it on another thread of the rank."""

    token: str


@dataclass(frozen=True, slots=True)
class Await:
    """Hold the thread until a token has been passed; a token is used once."""

    token: str


Operation = (
    Kernel
    | Graph
    | Copy
    | Collective
    | Message
    | StreamWait
    | Synchronize
    | HostWork
    | Begin
    | End
    | Signal
    | Await
)
PROCESS = 1_000
"""Threads from this number on are processes of their own, as workers of a data loader."""
Program = dict[int, list[Operation]]
"""What each thread of one rank does, by thread number, in order."""
