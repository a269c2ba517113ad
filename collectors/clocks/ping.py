"""How far this host's clock is from another one's, by small messages over TCP and back.

One exchange has four stamps: sent here, received there, replied there, back here. What the way
takes is unknown only in how it is shared between the two directions, so half of it bounds the
error; the exchanges that no queue held up are the ones that count.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from statistics import median_low
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TOKEN_BYTES = 32
"""Of the secret that a connection begins with."""
PING = Struct("!q")
"""The number of the exchange."""
PONG = Struct("!qqq")
"""The number of the exchange, and the two stamps taken there in ns."""

N_EXCHANGES = 200
MIN_EXCHANGES = 20
"""Of fewer, the tenth that counts would be one or none."""
STALL_S = 1.0
"""A peer that answers no sooner has its answer thrown away by the estimate anyway."""
DEADLINE_S = 5.0
"""For all exchanges: beyond a round trip of 25 ms there are fewer of them."""


class Exchange(NamedTuple):
    """The stamps of one exchange, each of the clock where it was taken."""

    sent_ns: int
    received_ns: int
    replied_ns: int
    back_ns: int

    @property
    def delay_ns(self) -> int:
        """What the two ways took together."""
        return (self.back_ns - self.sent_ns) - (self.replied_ns - self.received_ns)

    @property
    def offset_ns(self) -> int:
        """What to add to this host's time, if both ways took equally long."""
        return ((self.received_ns - self.sent_ns) + (self.replied_ns - self.back_ns)) // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    """What to add to this host's time, at `at_ns` of its clock, to get the reference's.

    `min_delay_ns` is that of the fastest of `n` exchanges.
    """

    at_ns: int
    offset_ns: int
    error_ns: int
    min_delay_ns: int
    n: int


def measure(
    address: tuple[str, int],
    token: bytes,
    *,
    n: int = N_EXCHANGES,
    deadline_s: float = DEADLINE_S,
    now_ns: Callable[[], int] = time.time_ns,
) -> Offset:
    """The offset to the reference that listens at an address.

    Raises:
        OSError: it does not listen, or is lost or silent before `MIN_EXCHANGES` are done.
    """
    end_s = time.monotonic() + deadline_s
    exchanges: list[Exchange] = []
    with socket.create_connection(address, timeout=min(STALL_S, deadline_s)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            connection.sendall(token)
            while len(exchanges) < n and (left_s := end_s - time.monotonic()) > 0:
                connection.settimeout(min(STALL_S, left_s))
                exchanges.append(_exchange(connection, len(exchanges), now_ns))
        except OSError as error:
            if len(exchanges) < MIN_EXCHANGES:
                raise type(error)(f"{error} after {len(exchanges)} of {n} exchanges") from error
    return estimate(exchanges)


def _exchange(connection: socket.socket, number: int, now_ns: Callable[[], int]) -> Exchange:
    sent_ns = now_ns()
    connection.sendall(PING.pack(number))
    answer = b""
    while len(answer) < PONG.size:
        part = connection.recv(PONG.size - len(answer))
        if not part:
            raise ConnectionError("the reference closed the connection")
        answer += part
    back_ns = now_ns()
    answered, received_ns, replied_ns = PONG.unpack(answer)
    if answered != number:
        raise ConnectionError("the answer is to another question")
    return Exchange(sent_ns, received_ns, replied_ns, back_ns)


def estimate(exchanges: Sequence[Exchange]) -> Offset:
    """The median offset of the tenth with the lowest delay.

    The error is at least half the least delay. It is more where a kept exchange rules out that the
    reference's time is so near: each says that the truth is within half its delay. Where they
    contradict each other, since a clock was set meanwhile, the error spans them all.

    Raises:
        ConnectionError: fewer than `MIN_EXCHANGES` have stamps in order.
    """
    sound = [each for each in exchanges if each.delay_ns >= 0]  # a clock set back makes it negative
    if len(sound) < MIN_EXCHANGES:
        raise ConnectionError(f"only {len(sound)} exchanges, where {MIN_EXCHANGES} are needed")
    kept = sorted(sound, key=lambda each: each.delay_ns)[: len(sound) // 10]
    offset_ns = median_low(each.offset_ns for each in kept)
    lows_ns = [each.offset_ns - (each.delay_ns + 1) // 2 for each in kept]
    highs_ns = [each.offset_ns + (each.delay_ns + 1) // 2 + 1 for each in kept]
    low_ns, high_ns = max(lows_ns), min(highs_ns)
    if low_ns > high_ns:
        low_ns, high_ns = min(lows_ns), max(highs_ns)
    return Offset(
        at_ns=median_low((each.sent_ns + each.back_ns) // 2 for each in kept),
        offset_ns=offset_ns,
        error_ns=max((kept[0].delay_ns + 1) // 2, offset_ns - low_ns, high_ns - offset_ns),
        min_delay_ns=kept[0].delay_ns,
        n=len(sound),
    )
