"""Calls that a plugin saw on one process, and the rows of `collectives` that they are.

A plugin knows communicators by a hash and ranks by their place in one. The largest communicator of
a process, and of those its first, numbers the ranks of the job; members of others are not known.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.derive.kernel_kinds import POINT_TO_POINT, operation_of
from tracekit.schema import COLLECTIVES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_RANKS = 1 << 20
OF_ALL_OUT = ("all_gather", "all_to_all")
"""NCCL counts what a rank sends (to each, in all-to-all), and gives each rank n times as much."""
OF_ALL_IN = ("reduce_scatter", "all_to_all")
"""NCCL counts what one rank gets, and puts in n times as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Communicator:
    """A communicator as one of its ranks sees it; a plugin may not say how many ranks it has."""

    key: str
    name: str | None
    rank: int
    n_ranks: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of one rank. Times are Unix ns; a null one was not recorded."""

    communicator: Communicator
    function: str
    sequence: int | None
    size_bytes: int | None
    start_ns: int
    dur_ns: int
    enqueue_ns: int | None = None
    peer: int | None = None
    dtype: str | None = None

    @property
    def operation(self) -> str | None:
        """all_reduce, send …; null for one that is not known."""
        return self.function.lower() if self.is_message else operation_of(self.function)

    @property
    def is_message(self) -> bool:
        """Whether it is point-to-point."""
        return self.function.lower() in POINT_TO_POINT


def communicator_of_all(found: Iterable[Communicator]) -> Communicator | None:
    """The one that numbers the ranks: the largest, and of those the one with most calls."""
    counts = Counter(found)
    return max(counts, key=lambda each: (each.n_ranks or 0, counts[each], each.key), default=None)


def collective_rows(calls: Sequence[Call], epoch_ns: int, source: str) -> pl.DataFrame:
    """The calls of a process as rows of `collectives`, by start.

    Calls of one communicator and function have equal numbers on all ranks, which joins them.
    """
    of_all = communicator_of_all(call.communicator for call in calls)
    rows = [_row(call, of_all, epoch_ns, source) for call in calls]
    frame = pl.DataFrame(rows, schema=COLLECTIVES.schema)
    return frame.sort("start_ns", "group", "name", "sequence", maintain_order=True)


def _row(call: Call, of_all: Communicator | None, epoch_ns: int, source: str) -> dict[str, Any]:
    group, operation = call.communicator, call.operation
    is_of_all = group == of_all
    other = call.peer if call.is_message and is_of_all else None  # numbers ranks as the job does
    return {
        "start_ns": call.start_ns - epoch_ns,
        "dur_ns": call.dur_ns,
        "name": call.function,
        "group": f"{group.name or 'communicator'} {group.key}",
        "members": list(range(group.n_ranks)) if is_of_all and group.n_ranks else None,
        "group_size": group.n_ranks,
        "sequence": call.sequence,
        "comms_id": None if call.is_message or call.sequence is None else _id(call),
        "operation": operation,
        "dtype": call.dtype,
        "bytes_in": _bytes(call, is_of_all=operation in OF_ALL_IN),
        "bytes_out": _bytes(call, is_of_all=operation in OF_ALL_OUT),
        "enqueue_ns": None if call.enqueue_ns is None else call.enqueue_ns - epoch_ns,
        "source": source,
        "source_rank": other if operation == "recv" else None,
        "destination_rank": other if operation == "send" else None,
    }


def _bytes(call: Call, *, is_of_all: bool) -> int | None:
    """What the call counts, or that of all ranks together; null where that is not known."""
    n = call.communicator.n_ranks if is_of_all else 1
    return None if call.size_bytes is None or n is None else call.size_bytes * n


def _id(call: Call) -> int:
    text = f"{call.communicator.key} {call.function} {call.sequence}"
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big")
