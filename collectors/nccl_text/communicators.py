"""Communicators and their connections, put together from lines of many threads.

Lines about a communicator rarely name it. A thread makes one at a time, so that what it says
belongs to the one it makes: the one whose start it told (2.15 and later), else the one that its
next "Init COMPLETE" names. What is connected later, at the first call, belongs to the last one of
the device in which the rank has the number that the line gives it.

Formats: NVIDIA/nccl, src/init.cc, src/transport/*.cc (2.4 to 2.28); ROCm/rccl the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tracekit.collectors.nccl_text.lines import Process
from tracekit.schema.communicators import INIT_PARTS

if TYPE_CHECKING:
    from tracekit.collectors.nccl_text.lines import Said

MAX_CONNECTIONS = 1 << 22
"""More are counted, not kept: a job of 4,096 ranks has about so many."""
SECOND_NS = 1e9
_COMM = re.compile(
    r"(?:nccl\w+ )?comm (?P<address>0x[0-9a-f]{1,16}) rank (?P<rank>\d{1,7}) "
    r"n[rR]anks (?P<n_ranks>\d{1,7})(?P<rest>.*)"
)
_PAIR = re.compile(r"\b(nNodes|localRanks|nvmlDev|cudaDev|busId|commId|parent) (?:0x)?(\w{1,32})")
_TIMINGS = re.compile(
    r"Init timings(?: - \w+)?: rank (?P<rank>\d{1,7}) nranks (?P<n_ranks>\d{1,7}) "
    r"total (?P<total>[\d.]{1,16})(?: \((?P<parts>[^)]*)\))?"
)
_PART = re.compile(r"(\w+) ([\d.]{1,16})")
_CONNECTION = re.compile(
    r"(?:Channel|Ring|Tree|CollNet|Coll) (?P<channel>\d{1,5})(?:/(?P<kind>\d{1,3}))? : "
    r"(?P<one>\d{1,7})(?:\[\w*\])?(?: -> (?P<other>\d{1,7})(?:\[\w*\])?)?"
    r"(?: \[(?P<direction>send|receive)\])? via (?P<via>.+)"
)
_CHANNELS = re.compile(
    r"(?:comm 0x[0-9a-f]{1,16}, )?(?P<coll>\d{1,6}) coll channels,"
    r"(?: \d{1,6} collnet channels,)?(?: (?P<nvls>\d{1,6}) nvls channels,)?"
    r" (?P<p2p>\d{1,6}) p2p channels"
)
_NVLS = re.compile(r"NVLS multicast support is (not )?available on dev")
_NETWORK = re.compile(r"Using network (.{1,60})")
_OF_RCCL = re.compile(r" comm (?P<address>0x[0-9a-f]{1,16}) nRanks (?P<n_ranks>\d{1,7})$")
"""RCCL says of each connection which communicator it is of."""
_OLD_SHARED = "direct shared memory"
"""What SHM was called up to 2.10."""


@dataclass(slots=True)
class Communicator:
    """One communicator of one rank, as far as it has been told of. Times in ns."""

    process: Process
    rank: int | None = None
    n_ranks: int | None = None
    address: str | None = None
    facts: dict[str, str] = field(default_factory=dict)
    channels: dict[str, int | None] = field(default_factory=dict)
    timings_ns: dict[str, int] = field(default_factory=dict)
    network: str | None = None
    is_nvls_available: bool | None = None
    is_complete: bool = False
    is_timed: bool = False
    is_gone: bool = False


@dataclass(frozen=True, slots=True)
class Connection:
    """One connection: the other end and what it goes by."""

    communicator: Communicator
    peer: int | None
    channel: int
    is_message: bool
    direction: str
    via: str


@dataclass(slots=True)
class Told:
    """All communicators and connections of a log so far."""

    communicators: list[Communicator] = field(default_factory=list)
    connections: list[Connection] = field(default_factory=list)
    n_left_out: int = 0
    _network: dict[tuple[str, int], str] = field(default_factory=dict)
    _of_thread: dict[tuple[str, int, int], Communicator] = field(default_factory=dict)
    _of_device: dict[Process, list[Communicator]] = field(default_factory=dict)

    def hear(self, said: Said) -> bool:
        """Take in one line; whether it was about a communicator."""
        return (
            self._communicator(said)
            or self._connection(said)
            or self._detail(said)
            or self._timings(said)
        )

    def _communicator(self, said: Said) -> bool:
        """A line that names one: its start, its layout, that it is made, or its end."""
        match = _COMM.match(said.text)
        if match is None:
            return False
        address, rank, n_ranks = match["address"], int(match["rank"]), int(match["n_ranks"])
        facts = dict(_PAIR.findall(match["rest"]))
        is_end = "Destroy" in match["rest"] or "Abort" in match["rest"]
        process = _on_device(said, facts.get("cudaDev"))
        known = self._known(said, process, address, rank, n_ranks)
        if known is None:
            if is_end:
                return True
            known = self._new(process)
        known.address, known.rank, known.n_ranks = address, rank, n_ranks
        known.facts |= {name: value for name, value in facts.items() if name not in known.facts}
        known.is_gone = is_end  # its address may be given to another one
        if "Init COMPLETE" in match["rest"]:
            known.is_complete = True
        elif not is_end:
            self._of_thread[_thread(said)] = known
        return True

    def _known(
        self, said: Said, process: Process, address: str, rank: int, n_ranks: int
    ) -> Communicator | None:
        """The communicator at this address, or the nameless one that this thread makes."""
        key = (address, rank, n_ranks)
        for each in reversed(self._of_device.get(process, ())):
            if (each.address, each.rank, each.n_ranks) == key and not each.is_gone:
                return each
        making = self._of_thread.get(_thread(said))
        if making is None or making.address is not None or making.rank not in {None, rank}:
            return None
        if making.process != process:  # the device was not set when it began
            self._of_device[making.process].remove(making)
            making.process = process
            self._of_device.setdefault(process, []).append(making)
        return making

    def _new(self, process: Process) -> Communicator:
        made = Communicator(process)
        self.communicators.append(made)
        self._of_device.setdefault(process, []).append(made)
        return made

    def _making(self, said: Said) -> Communicator:
        """The one that this thread makes, a nameless one where it has not said which."""
        making = self._of_thread.get(_thread(said))
        if making is None or making.is_complete:
            making = self._new(said.process)
            self._of_thread[_thread(said)] = making
        return making

    def _connection(self, said: Said) -> bool:
        match = _CONNECTION.match(said.text)
        if match is None:
            return False
        if len(self.connections) >= MAX_CONNECTIONS:
            self.n_left_out += 1
            return True
        direction = match["direction"] or "send"
        one = int(match["one"])
        other = int(match["other"]) if match["other"] else None
        own, peer = (other, one) if direction == "receive" and other is not None else (one, other)
        via = match["via"].strip()
        named = _OF_RCCL.search(via)
        via = via[: named.start()] if named else via
        self.connections.append(
            Connection(
                communicator=self._named(said, own, named)
                if named
                else self._with_rank(said, own, max(own, peer or 0), via),
                peer=peer,
                channel=int(match["channel"]),
                is_message=(match["kind"] or "0") != "0",
                direction=direction,
                via="SHM" if via == _OLD_SHARED else via[:200],
            )
        )
        return True

    def _named(self, said: Said, own: int, named: re.Match[str]) -> Communicator:
        """The communicator at an address, which may be told of before it is made."""
        address, n_ranks = named["address"], int(named["n_ranks"])
        for each in reversed(self._of_device.get(said.process, ())):
            if each.address == address and not each.is_gone:
                return each
        made = self._making(said)
        if made.address is not None:
            made = self._new(said.process)
            self._of_thread[_thread(said)] = made
        made.address, made.rank, made.n_ranks = address, own, n_ranks
        return made

    def _with_rank(self, said: Said, own: int, largest: int, via: str) -> Communicator:
        """The communicator that a connection of this rank in it belongs to.

        The network is between nodes, where others than those of one node can be meant.
        """
        making = self._of_thread.get(_thread(said))
        if making is not None and not making.is_complete and making.rank in {None, own}:
            making.rank = own
            return making
        fitting = [
            each
            for each in reversed(self._of_device.get(said.process, ()))
            if each.is_complete and each.rank == own and largest < (each.n_ranks or 0)
        ]
        if via.startswith("NET"):
            fitting.sort(key=lambda each: each.facts.get("nNodes") == "1")
        if fitting:
            return fitting[0]
        making = self._new(said.process)
        making.rank = own
        self._of_thread[_thread(said)] = making
        return making

    def _detail(self, said: Said) -> bool:
        """Channels, NVLS, network: of the one that the thread makes."""
        if (match := _CHANNELS.match(said.text)) is not None:
            counts = match.groupdict()
            self._making(said).channels = {name: n and int(n) for name, n in counts.items()}  # type: ignore[misc]
        elif (match := _NVLS.match(said.text)) is not None:
            self._making(said).is_nvls_available = match[1] is None
        elif (match := _NETWORK.match(said.text)) is not None:
            making = self._of_thread.get(_thread(said))
            if making is not None and not making.is_complete:
                making.network = match[1].strip()
            # before 2.19 the process chooses one, before it makes any communicator
            self._network[said.process.host, said.process.pid] = match[1].strip()
        else:
            return False
        return True

    def _timings(self, said: Said) -> bool:
        match = _TIMINGS.match(said.text)
        if match is None:
            return False
        key = (int(match["rank"]), int(match["n_ranks"]))
        making = self._of_thread.get(_thread(said))
        others = reversed(self._of_device.get(said.process, ()))
        for each in [*([making] if making else []), *others]:
            if not each.is_timed and (each.rank, each.n_ranks) == key:
                each.is_timed = True
                each.timings_ns = _ns(match["total"], match["parts"])
                break
        return True

    def whole(self) -> list[Communicator]:
        """Communicators that are known by name or by connections, in the order of their lines."""
        connected = {id(each.communicator) for each in self.connections}
        found = [c for c in self.communicators if c.address is not None or id(c) in connected]
        for each in found:
            process = (each.process.host, each.process.pid)
            each.network = each.network or self._network.get(process)
        return found


def _ns(total: str, parts: str | None) -> dict[str, int]:
    """Seconds as NCCL prints them, in ns; parts that it does not know are left out."""
    told = {"init": total, **dict(_PART.findall(parts or ""))}
    found = {}
    for name, seconds in told.items():
        if name in {"init", *INIT_PARTS} and seconds.count(".") <= 1 and seconds != ".":
            found[name] = round(float(seconds) * SECOND_NS)
    return found


def _thread(said: Said) -> tuple[str, int, int]:
    return said.process.host, said.process.pid, said.thread


def _on_device(said: Said, device: str | None) -> Process:
    """The process on the device of the communicator, which its thread may not have set yet."""
    if device is None or not device.isdecimal():
        return said.process
    return Process(said.process.host, said.process.pid, int(device))
