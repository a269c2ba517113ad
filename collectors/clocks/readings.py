"""What a host's clock was found to be, and the file that keeps it: `clocks/host=NAME.jsonl`."""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from tracekit.collectors.clocks.pairs import clock_pair
from tracekit.collectors.clocks.ping import DEADLINE_S, Offset, measure
from tracekit.collectors.clocks.rendezvous import NAME, published

POLL_S = 0.2
LEAST_DEADLINE_S = 1.0
"""What one try is given when the time to find a reference is nearly over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One measurement: an offset and the address it came from, or why there is none.

    `kind` is start, periodic or end; `reference` the host that was asked.
    """

    kind: str
    reference: str | None = None
    address: str | None = None
    offset: Offset | None = None
    why: str | None = None


def own_reading(kind: str, host: str, now_ns: Callable[[], int] = time.time_ns) -> Reading:
    """The reading of the reference itself, whose clock is right by definition."""
    offset = Offset(at_ns=now_ns(), offset_ns=0, error_ns=0, min_delay_ns=0, n=0)
    return Reading(kind=kind, reference=host, offset=offset)


@dataclass(slots=True, kw_only=True)
class Asker:
    """A host that measures against the published reference.

    Args:
        folder: the one of the clocks.
        is_over: asked between tries; true ends them.
        now_ns: this host's clock.
        address: the one that answered last, which is tried first.
    """

    folder: Path
    is_over: Callable[[], bool]
    now_ns: Callable[[], int] = time.time_ns
    address: str | None = None


def reading(kind: str, asker: Asker, find_s: float) -> Reading:
    """Measure; where that fails, try again for so long, then say why there is no offset."""
    end_s = time.monotonic() + find_s
    while True:
        left_s = max(LEAST_DEADLINE_S, end_s - time.monotonic())
        found = _try(kind, asker, min(DEADLINE_S, left_s))
        if found.offset or asker.is_over() or time.monotonic() + POLL_S > end_s:
            return found
        time.sleep(POLL_S)


def _try(kind: str, asker: Asker, deadline_s: float) -> Reading:
    """The reading from the first address that answers."""
    path = asker.folder / NAME
    try:
        reference = published(asker.folder)
    except FileNotFoundError:
        return Reading(kind=kind, why=f"no reference has written {path}")
    except (OSError, ValueError) as error:
        return Reading(kind=kind, why=f"{path}: {getattr(error, 'strerror', None) or error}")
    refusals = []
    token = reference.token.encode()
    for address in sorted(reference.addresses, key=lambda each: each != asker.address):
        place = (address, reference.port)
        try:
            offset = measure(place, token, deadline_s=deadline_s, now_ns=asker.now_ns)
        except OSError as error:
            refusals.append(f"{address}: {error.strerror or error}")
        else:
            asker.address = address
            return Reading(kind=kind, reference=reference.host, address=address, offset=offset)
    why = f"port {reference.port} of {reference.host} gives no time: {'; '.join(refusals)}"
    return Reading(kind=kind, reference=reference.host, why=why)


class Record:
    """A host's file of readings, held by one process at a time: others write nothing.

    Where no launcher counts the ranks of a host, each of them may start one; so the reference
    serves whether it records or not.
    """

    def __init__(self, folder: Path, host: str) -> None:
        """Open the file, to append to it.

        Raises:
            OSError: it cannot be opened.
        """
        self._host = host
        self._file = (folder / f"host={host}.jsonl").open("a", encoding="utf-8")
        self.is_ours = True
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.is_ours = False
        except OSError:
            pass  # a file system without locks; two processes would write each line twice

    def write(self, found: Reading, now_ns: Callable[[], int] = time.time_ns) -> None:
        """Append a line: the host, the reading, and both clocks of this moment."""
        if not self.is_ours:
            return
        said = {"host": self._host, **asdict(found), "pair": asdict(clock_pair(now_ns))}
        self._file.write(json.dumps(said) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Let another process record this host."""
        self._file.close()
