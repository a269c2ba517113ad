"""A job as NCCL's RAS answers for it: how many calls each rank has made in each communicator."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from tracekit.sample_traces.simulator.flight_recorder import Stops, reached
from tracekit.sample_traces.simulator.job import Job, groups

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.sample_traces.simulator.operations import Group

LOCAL_RANKS = 8


def write_answers(path: Path, job: Job, stops: Stops, n_answers: int = 2) -> None:
    """Write answers a minute apart, of a job that has ended or stands still."""
    counts = reached(job, stops)
    known = [group for group in groups(job) if len(group.members) > 1]
    answers = []
    for number in range(n_answers):
        answer = {
            "nccl_version": "2.28.9",
            "cuda_runtime_version": 12090,
            "cuda_driver_version": 12090,
            "timestamp": f"2026-01-01 10:{number:02d}:00",
            "communicators_count": len(known),
            "communicators": [_communicator(group, counts) for group in known],
            "ras": {"collection_time_sec": 0.012, "timeouts_count": 0},
        }
        answers.append(json.dumps(answer, indent=2))
    path.write_text("\n".join(answers) + "\n", encoding="utf-8")


def _communicator(group: Group, counts: dict[int, dict[str, int]]) -> dict[str, Any]:
    return {
        "hash": f"0x{sha256(group.name.encode()).hexdigest()[:14]}",
        "secondary_hash": "0x1:0x2",
        "size": len(group.members),
        "ranks_count": len(group.members),
        "missing_ranks_count": 0,
        "ranks": [
            {
                "rank": number,
                "host": f"10.0.0.{rank // LOCAL_RANKS + 1}",
                "pid": 1000 + rank,
                "cuda_dev": rank % LOCAL_RANKS,
                "nvml_dev": rank % LOCAL_RANKS,
                "status": {
                    "init_state": 0,
                    "async_error": 0,
                    "finalize_called": False,
                    "destroy_flag": False,
                    "abort_flag": False,
                },
                "collective_counts": {
                    "Broadcast": 0,
                    "Reduce": 0,
                    "AllGather": 0,
                    "ReduceScatter": 0,
                    "AllReduce": counts[rank].get(group.name, 0),
                },
            }
            for number, rank in enumerate(group.members)
        ],
        "missing_ranks": [],
    }
