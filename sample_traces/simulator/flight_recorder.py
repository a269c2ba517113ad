"""A job as flight recorders see it: what each rank called, and which calls ended.

Hosts call the collectives of their program in order, at most `N_AHEAD` before what their device has
ended; devices run the calls of each group in order. A collective ends where all members have called
it and have ended what came before in its group. What stops, stops for ever.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tracekit.sample_traces.simulator.job import Job, groups
from tracekit.sample_traces.simulator.operations import Group

if TYPE_CHECKING:
    from pathlib import Path

N_STEPS, N_LAYERS, N_BUCKETS = 6, 4, 2
N_AHEAD = 16
RING = 48
"""Records that a recorder keeps."""
START_NS = 1_758_600_000_000_000_000
CALL_NS, TIMEOUT_MS = 200_000, 600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Stops:
    """What goes wrong, by rank: from which call on its host makes none, or calls a broadcast."""

    host_from: dict[int, int] = field(default_factory=dict)
    other_call: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Rank:
    """Calls of one rank: their groups, how many it made and how many of each group ended."""

    program: list[Group]
    n_called: int = 0
    ended: dict[str, int] = field(default_factory=dict)

    def called_of(self, group: str) -> int:
        return sum(each.name == group for each in self.program[: self.n_called])

    @property
    def n_ended(self) -> int:
        return sum(self.ended.values())


def write_dumps(folder: Path, job: Job, stops: Stops, seed: int) -> None:
    """Write what the recorder of each rank holds in the end: files `rank_0`, `rank_1`, … of JSON.

    Args:
        folder: where the dumps go; it exists.
        job: its layout alone counts.
        stops: what goes wrong.
        seed: of the times of calls.
    """
    known = {group.name: group for group in groups(job)}
    ranks = {rank: _Rank(_program(job, rank, known)) for rank in range(job.world_size)}
    _run(ranks, known, stops)
    for rank, state in ranks.items():
        own = [group for group in known.values() if rank in group.members]
        dump = {
            "version": "2.10",
            "comm_lib_version": "2.27.3",
            "pg_config": {g.name: _config(g) for g in own},
            "pg_status": {
                str(number): {
                    "last_enqueued_collective": str(state.called_of(group.name) or -1),
                    "last_started_collective": "-1",
                    "last_completed_collective": str(state.ended.get(group.name) or -1),
                }
                for number, group in enumerate(own)
            },
            "entries": _entries(state, own, stops.other_call.get(rank), seed * 1009 + rank),
        }
        (folder / f"rank_{rank}").write_text(json.dumps(dump), encoding="utf-8")


def reached(job: Job, stops: Stops) -> dict[int, dict[str, int]]:
    """How many calls of each group each rank has made in the end."""
    known = {group.name: group for group in groups(job)}
    ranks = {rank: _Rank(_program(job, rank, known)) for rank in range(job.world_size)}
    _run(ranks, known, stops)
    return {rank: {g: state.called_of(g) for g in known} for rank, state in ranks.items()}


def _program(job: Job, rank: int, known: dict[str, Group]) -> list[Group]:
    """The group of each call: tensor parallel ones in every layer, then data parallel ones."""
    dp, tp, pp = job.coordinates(rank)
    step = [known[f"tp{dp}.{pp}"]] * 2 * N_LAYERS + [known[f"dp{tp}.{pp}"]] * N_BUCKETS
    return step * N_STEPS


def _run(ranks: dict[int, _Rank], known: dict[str, Group], stops: Stops) -> None:
    """Let hosts call and devices end calls until nothing moves."""
    moved = True
    while moved:
        moved = False
        for rank, state in ranks.items():
            last = min(len(state.program), stops.host_from.get(rank, len(state.program)))
            reached = min(last, state.n_ended + N_AHEAD)
            moved |= reached > state.n_called
            state.n_called = max(state.n_called, reached)
        for name, group in known.items():
            members = [ranks[rank] for rank in group.members]
            ends = min(state.called_of(name) for state in members)
            for state in members:
                moved |= ends > state.ended.get(name, 0)
                state.ended[name] = ends


def _config(group: Group) -> dict[str, str]:
    return {"name": group.name, "desc": group.purpose, "ranks": str(list(group.members))}


def _entries(state: _Rank, own: list[Group], other_call: int | None, seed: int) -> list[Any]:
    """The last records of a rank, in order."""
    generator = random.Random(seed)  # noqa: S311 - a simulation
    numbers: dict[str, int] = {}
    records = []
    for call, group in enumerate(state.program[: state.n_called]):
        number = numbers[group.name] = numbers.get(group.name, 0) + 1
        is_done = number <= state.ended.get(group.name, 0)
        at_ns = START_NS + CALL_NS * call + generator.randrange(CALL_NS)
        records.append(
            {
                "record_id": call,
                "pg_id": own.index(group),
                "process_group": [group.name, group.purpose],
                "collective_seq_id": number,
                "p2p_seq_id": 0,
                "op_id": number,
                "profiling_name": "nccl:broadcast" if call == other_call else "nccl:all_reduce",
                "time_created_ns": at_ns,
                "input_sizes": [[1 << 20]],
                "input_dtypes": ["BFloat16"],
                "output_sizes": [[1 << 20]],
                "output_dtypes": ["BFloat16"],
                "state": "completed" if is_done else "scheduled",
                "time_discovered_started_ns": 0,
                "time_discovered_completed_ns": at_ns + CALL_NS if is_done else 0,
                "retired": is_done,
                "timeout_ms": TIMEOUT_MS,
                "is_p2p": False,
            }
        )
    return records[-RING:]
