"""Making communicators takes long: every start and restart of the job waits for it.

What it measures:
    How long NCCL takes to make each communicator, by its own timings, and which part of it is long.

Formula:
    time of a communicator = the least of its ranks: the others' includes waiting for the last one.
    measured = Σ over the communicators of the rank that spends most.

Threshold:
    Found when measured is at least `max_init_ns`. Skipped without a log, or of NCCL before 2.18,
    which does not print timings.

Evidence:
    Communicators that took longest, with the parts.

What-if saving:
    None: it is time at the start, not of a step.

Recommendation:
    By the longest part: bootstrap (interface, ranks that come late), topology, connections (made
    at the first call since 2.22), kernels (loaded at once).

References:
    https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from tracekit.detectors import Detector, finding, number, skipped
from tracekit.detectors._nccl_log import HOW
from tracekit.findings import (
    Cause,
    Change,
    Column,
    Confidence,
    Evidence,
    Finding,
    Level,
    Recommendation,
    Status,
)
from tracekit.schema import COMMUNICATORS
from tracekit.schema.communicators import INIT_PARTS
from tracekit.units import Quantity, Unit, limit

if TYPE_CHECKING:
    from tracekit.store import Run

MAX_SHOWN = 8
_ADVICE: dict[str, tuple[str, tuple[str, ...]]] = {
    "bootstrap": (
        (
            "Ranks find each other over TCP: name the fast interface, and look for ranks that come "
            "late and for slow name lookups."
        ),
        ("export NCCL_SOCKET_IFNAME=eth0  # the interface that all nodes share",),
    ),
    "allgathers": (
        "Ranks exchange what they see: look for ranks that come late.",
        ("export NCCL_SOCKET_IFNAME=eth0  # the interface that all nodes share",),
    ),
    "topo": (
        "The topology of the node is read from its devices: keep it in a file.",
        ("export NCCL_TOPO_DUMP_FILE=topo.xml", "export NCCL_TOPO_FILE=topo.xml"),
    ),
    "graphs": (
        "Rings and trees are searched: keep them in a file.",
        ("export NCCL_GRAPH_DUMP_FILE=graph.xml", "export NCCL_GRAPH_FILE=graph.xml"),
    ),
    "connections": (
        "Connections are made at once: since NCCL 2.22 they can wait for the first call.",
        ("export NCCL_RUNTIME_CONNECT=1",),
    ),
    "kernels": (
        "Kernels are loaded at once: let CUDA load each at its first launch.",
        ("export CUDA_MODULE_LOADING=LAZY",),
    ),
}
_OTHER = ("Make fewer communicators, or split them from one (ncclCommSplit).", ())


@dataclass(frozen=True, slots=True)
class Limits:
    """When making communicators is long."""

    max_init_ns: float = limit(
        20e9, Unit.NS, "One node takes a second; 20 s are felt at every restart of a job."
    )


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for the run."""
    rows = _communicators(run)
    if rows.is_empty():
        why = f"the log holds no timings: NCCL prints them since 2.18. {HOW}"
        return (skipped(DETECTOR, why, is_of_further_source=True),)
    by_rank = rows.group_by("rank").agg(pl.col("least_ns").sum()).sort("least_ns", "rank")
    rank, total_ns = by_rank.row(-1)
    measured, bound = Quantity(total_ns, Unit.NS), Quantity(limits.max_init_ns, Unit.NS)
    own = rows.filter(rank=rank).sort("least_ns", descending=True)
    evidence = (_evidence(own),)
    if total_ns < limits.max_init_ns:
        return (finding(DETECTOR, Status.CLEAR, measured=measured, limit=bound, evidence=evidence),)
    parts = {part: number(own[f"{part}_ns"].sum()) for part in INIT_PARTS}
    longest = max(parts, key=lambda part: parts[part])
    text, commands = _ADVICE.get(longest, _OTHER)
    return (
        finding(
            DETECTOR,
            Status.FOUND,
            title=f"Making communicators takes {measured}",
            cause=Cause.TOPOLOGY_SETTING,
            measured=measured,
            limit=bound,
            confidence=Confidence(Level.HIGH, "NCCL's own timings"),
            why=f"most of it is {longest}: {Quantity(parts[longest], Unit.NS)}",
            recommendation=Recommendation(text, Change.SETTING, commands),
            evidence=evidence,
        ),
    )


def _communicators(run: Run) -> pl.DataFrame:
    """Timed communicators of each rank, with `least_ns`, what it takes its fastest rank.

    Ranks of one are known by its id; without one each rank's is by itself.
    """
    rows = run.scan_all("communicators").drop_nulls("init_ns").collect()
    one = pl.coalesce("communicator_id", pl.concat_str("rank", "host", "pid", "communicator"))
    return rows.with_columns(least_ns=pl.col("init_ns").min().over(one))


def _evidence(own: pl.DataFrame) -> Evidence:
    parts = [f"{part}_ns" for part in INIT_PARTS]
    return Evidence(
        title="Communicators of the rank that spends most on them",
        columns=(
            Column("rank", Unit.COUNT),
            Column("ranks in it", Unit.COUNT),
            Column("least of its ranks", Unit.NS),
            *(Column(part, Unit.NS) for part in INIT_PARTS),
        ),
        rows=tuple(own.select("rank", "n_ranks", "least_ns", *parts).head(MAX_SHOWN).iter_rows()),
    )


DETECTOR = Detector(
    id="slow-communicator-init",
    title="Making communicators takes long",
    clear="Communicators are made quickly",
    needs=(COMMUNICATORS,),
    how=HOW,
    limits=Limits,
    detect=detect,
)
