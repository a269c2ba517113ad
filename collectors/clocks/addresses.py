"""Where this host can be reached from another one, as far as the standard library can tell."""

from __future__ import annotations

import fcntl
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SIOCGIFADDR = 0x8915
"""Linux, bits/ioctls.h: ask for the address of an interface."""
LOOPBACKS = ("127.", "::1")


def addresses() -> tuple[str, ...]:
    """Where this host can be reached, the likeliest first; loopback only where there is no other.

    What the host's name stands for comes before the addresses of its interfaces, which may belong
    to bridges of containers.
    """
    found = dict.fromkeys([*_of_name(), *_of_interfaces()])
    outside = tuple(each for each in found if not each.startswith(LOOPBACKS))
    return outside or ("127.0.0.1",)


def _of_name() -> Iterator[str]:
    with suppress(OSError):  # a name that stands nowhere
        for *_, place in socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM):
            yield str(place[0])


def _of_interfaces() -> Iterator[str]:
    """IPv4 addresses from the kernel, and global IPv6 ones from its table."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # an interface without an address
                request = struct.pack("256s", name.encode()[:15])
                answer = fcntl.ioctl(asked, SIOCGIFADDR, request)
                yield socket.inet_ntoa(answer[20:24])
    with suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text("ascii").splitlines():
            digits, _, _, scope, *_ = line.split()
            if scope == "00":
                yield socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))
