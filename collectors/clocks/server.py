"""The reference's side: answers each small message with the time, to whoever knows the token.

One thread serves all hosts. A connection that says something else, or says nothing for a while, is
closed; nothing that a stranger sends is kept or answered.
"""

from __future__ import annotations

import hmac
import selectors
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from tracekit.collectors.clocks.ping import PING, PONG, TOKEN_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_CONNECTIONS = 256
"""Far below the 1024 open files of a process; a host that is refused asks again."""
IDLE_S = 5.0
"""A host that measures says something every millisecond."""


@dataclass(slots=True, eq=False)
class _Caller:
    """A connection, what it has said that is not yet a whole message, and when it last spoke.

    Before it has said the token, `spoke_s` is when it came.
    """

    connection: socket.socket
    said: bytes
    spoke_s: float
    is_known: bool = False


class Server:
    """Listens on a port of all interfaces; works only inside `serve`."""

    def __init__(
        self, token: bytes, port: int = 0, *, now_ns: Callable[[], int] = time.time_ns
    ) -> None:
        """Listen; port 0 takes any that is free."""
        assert len(token) == TOKEN_BYTES
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        self._listener = socket.create_server(("", port), family=family, dualstack_ipv6=both)
        self._listener.settimeout(0)
        self._token = token
        self._now_ns = now_ns
        self._callers: list[_Caller] = []
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self.port: int = self._listener.getsockname()[1]
        self.n_known = 0
        """Connections so far that knew the token."""

    def __enter__(self) -> Self:
        """Listening already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close all connections and the port."""
        for caller in list(self._callers):
            self._hang_up(caller)
        self._selector.close()
        self._listener.close()

    def serve(self, for_s: float) -> None:
        """Answer what comes for this long."""
        end_s = time.monotonic() + for_s
        while (left_s := end_s - time.monotonic()) > 0:
            for key, _ in self._selector.select(left_s):
                if key.data is None:
                    self._accept()
                else:
                    self._answer(key.data)
        for caller in list(self._callers):
            if end_s - caller.spoke_s > IDLE_S:
                self._hang_up(caller)

    def _accept(self) -> None:
        with suppress(OSError):  # the host has gone again
            connection, _ = self._listener.accept()
            if len(self._callers) >= MAX_CONNECTIONS:
                connection.close()
                return
            connection.settimeout(0)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            caller = _Caller(connection, b"", time.monotonic())
            self._callers.append(caller)
            self._selector.register(connection, selectors.EVENT_READ, caller)

    def _answer(self, caller: _Caller) -> None:
        try:
            part = caller.connection.recv(TOKEN_BYTES + PING.size)
            received_ns = self._now_ns()
            caller.said += part
            if not part or not self._reply(caller, received_ns):
                self._hang_up(caller)
        except OSError:
            self._hang_up(caller)

    def _reply(self, caller: _Caller, received_ns: int) -> bool:
        """Answer a whole message. False where the caller must not go on."""
        if not caller.is_known:
            if len(caller.said) < TOKEN_BYTES:
                return True
            if not hmac.compare_digest(caller.said[:TOKEN_BYTES], self._token):
                return False
            caller.is_known = True
            caller.said = caller.said[TOKEN_BYTES:]
            self.n_known += 1
        caller.spoke_s = time.monotonic()
        if len(caller.said) < PING.size:
            return True
        (number,) = PING.unpack(caller.said[: PING.size])
        caller.said = caller.said[PING.size :]
        sent = caller.connection.send(PONG.pack(number, received_ns, self._now_ns()))
        return sent == PONG.size and not caller.said  # a host waits before it asks again

    def _hang_up(self, caller: _Caller) -> None:
        self._selector.unregister(caller.connection)
        self._callers.remove(caller)
        caller.connection.close()
