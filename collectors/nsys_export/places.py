"""Which ranks an export holds: a rank is one device as one process used it.

Nsight writes no rank. Where the file holds one process and device, the environment of what it
launched may say it (torchrun, MPI, Slurm). Several are counted in order of device, then process,
from where the environment puts the node.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from tracekit.collectors.nsys_export.opened import Export

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
COPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
SET = "CUPTI_ACTIVITY_KIND_MEMSET"
CALL = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")
SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
NVTX = "NVTX_EVENTS"
RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK")
WORLDS = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")
NODES = ("GROUP_RANK", "NODE_RANK", "SLURM_NODEID")
N_NODES = ("GROUP_WORLD_SIZE", "NNODES", "SLURM_NNODES")
MAX_RANKS = 4096
PID_UNIT = 1 << 24
"""A globalTid is a globalPid and the thread's number below it; so is a globalPid, of the pid."""
_SET = re.compile(r'^(\w+)="?(\d{1,6})"?$')


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One device of one process. Either is null where the file does not tell."""

    process: int | None
    device: int | None
    rank: int


def places(export: Export) -> tuple[Place, ...]:
    """The ranks of an export; one without a device where nothing ran on any.

    Where kernels ran, a device that a process only copied to is no rank of its own.
    """
    for tables in ((KERNEL, GRAPH), (COPY, SET)):
        found = {pair for table in tables for pair in _pairs(export, table)}
        if found:
            ordered = sorted(found, key=lambda pair: tuple(-1 if x is None else x for x in pair))
            first = _first_rank(export, len(ordered))
            return tuple(
                Place(device=device, process=process, rank=first + i)
                for i, (device, process) in enumerate(ordered[:MAX_RANKS])
            )
    return (Place(process=None, device=None, rank=_first_rank(export, 1)),)


def stated(export: Export) -> tuple[int | None, int | None]:
    """Rank and number of ranks in the environment of what Nsight launched, null where not there."""
    known = _environment(export)
    rank = next((known[name] for name in RANKS if name in known), None)
    world = next((known[name] for name in WORLDS if name in known), None)
    if rank is None and known.get("SLURM_NTASKS", 1) > 1:
        rank, world = known.get("SLURM_PROCID"), world or known["SLURM_NTASKS"]
    return (rank, world) if world is None or (rank or 0) < world else (None, None)


def world_size(export: Export, n_places: int) -> int | None:
    """Number of ranks of the job, as far as the environment tells."""
    _, world = stated(export)
    if n_places == 1 or (world or 0) >= n_places:
        return world
    known = _environment(export)
    n_nodes = next((known[name] for name in N_NODES if name in known), 1)
    return n_places * max(1, n_nodes)


def _pairs(export: Export, table: str) -> set[tuple[int | None, int | None]]:
    wanted = {"deviceId": "number", "globalPid": "number"}
    seen = [rows.unique() for rows in export.rows(table, wanted)]
    return {(row[0], row[1]) for row in pl.concat(seen).unique().iter_rows()} if seen else set()


def _first_rank(export: Export, n_places: int) -> int:
    if n_places == 1:
        return stated(export)[0] or 0
    known = _environment(export)
    node = next((known[name] for name in NODES if name in known), 0)
    return node * n_places


def _environment(export: Export) -> dict[str, int]:
    """The numbers among the variables of the processes that Nsight launched."""
    found: dict[str, int] = {}
    for name, value in export.facts("META_DATA_CAPTURE"):
        if name.endswith(":ENVIRONMENT_VARIABLE") and (match := _SET.match(value)):
            found.setdefault(match.group(1), int(match.group(2)))
    return found
