"""Which global rank each process of a log is.

A rank's number in the communicator of all ranks is its number in the job. torch makes that one
only where it is used, so that the largest communicator of a log may be one of many of its size:
then what the launcher wrote before the lines counts, else the order of hosts and devices.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tracekit.collectors.nccl_text.lines import Process

if TYPE_CHECKING:
    from tracekit.collectors.nccl_text.communicators import Communicator

BY_COMMUNICATOR = "the communicator of all ranks"
BY_LABEL = "what the launcher writes before each line"
BY_ORDER = "order of hosts and devices in the log"


@dataclass(frozen=True, slots=True)
class Numbering:
    """Global ranks of processes, how many ranks there are, where that is known from.

    Processes of one device that followed each other are the same rank.
    """

    ranks: dict[Process, int] = field(default_factory=dict)
    world_size: int | None = None
    source: str = BY_ORDER
    key: str | None = None


def numbering(
    communicators: list[Communicator], labels: dict[Process, int], speakers: list[Process]
) -> Numbering:
    """Global ranks of the processes that have communicators, else of all that speak.

    `key` tells jobs apart: the id of the communicator of all ranks, where there is one.
    """
    largest = max((each.n_ranks or 0 for each in communicators), default=0)
    whole = [c for c in communicators if c.n_ranks == largest and c.rank is not None]
    by_rank: dict[int, set[tuple[str, int]]] = defaultdict(set)
    for each in whole:
        by_rank[each.rank or 0].add((each.process.host, each.process.device))
    ids = {each.facts["commId"] for each in whole if "commId" in each.facts}
    if largest and all(len(places) == 1 for places in by_rank.values()):
        ranks = {each.process: each.rank or 0 for each in whole}
        places = {(p.host, p.device): rank for p, rank in ranks.items()}
        of_others = {
            c.process: places[c.process.host, c.process.device]
            for c in communicators
            if (c.process.host, c.process.device) in places
        }
        if len(ids) <= 1 or len(of_others) == len({c.process for c in communicators}):
            key = next(iter(ids)) if len(ids) == 1 else None
            return Numbering(of_others | ranks, largest, BY_COMMUNICATOR, key)
    having = list(dict.fromkeys(c.process for c in communicators)) or speakers
    given = {process: labels[process] for process in having if process in labels}
    if len(given) == len(having) == len(set(given.values())):
        return Numbering(given, max([*given.values(), largest - 1]) + 1, BY_LABEL)
    hosts = list(dict.fromkeys(process.host for process in having))
    order = sorted(having, key=lambda p: (hosts.index(p.host), p.device, p.pid))
    return Numbering({process: rank for rank, process in enumerate(order)}, None, BY_ORDER)
