"""The folder of one attempt of a job: `RUN/attempt=N`, which ranks find without asking each other.

A scheduler that relaunches a job gets a new attempt. A rank joins the last attempt if that belongs
to the same launch and has no such rank yet, else it begins the next one.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

JOB = "job.json"
MAX_ATTEMPTS = 10_000
_KEYS = (
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "MASTER_ADDR",
    "MASTER_PORT",
    "SLURM_JOB_ID",
    "SLURM_RESTART_COUNT",
    "SLURM_STEP_ID",
    "PT_PROFILER_JOB_NAME",
    "PT_PROFILER_JOB_ATTEMPT_INDEX",
)


def job_key(environment: Mapping[str, str] = os.environ) -> str:
    """What all ranks of one launch have in common, and two launches mostly have not."""
    values = [environment.get(name, "") for name in _KEYS]
    return hashlib.sha256("\0".join(values).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def claimed(run_dir: Path, rank: int, number: int | None, key: str) -> Path:
    """The folder of this rank's attempt, made if need be, with its rank claimed.

    Args:
        run_dir: where the job is recorded.
        rank: of this process.
        number: of the attempt, where the user gives it; else found.
        key: from `job_key`.

    Raises:
        OSError: nothing can be written there.
    """
    if number is not None:
        folder = run_dir / f"attempt={number}"
        _begin(folder, key)
        _claim(folder, rank)
        return folder
    first = max(len(list(run_dir.glob("attempt=*"))) - 1, 0)
    for each in range(first, MAX_ATTEMPTS):
        folder = run_dir / f"attempt={each}"
        if _begin(folder, key) and _claim(folder, rank):
            return folder
    raise OSError(f"{run_dir}: more than {MAX_ATTEMPTS} attempts")


def facts_path(folder: Path, rank: int) -> Path:
    """The facts of one rank of an attempt; empty until they are known."""
    return folder / "ranks" / f"rank={rank:06d}.json"


def _begin(folder: Path, key: str) -> bool:
    """Make the folder, or find it; whether it belongs to this launch."""
    (folder / "ranks").mkdir(parents=True, exist_ok=True)
    job = folder / JOB
    mine = folder / f".{JOB}.{secrets.token_hex(8)}"  # processes of two pods may share a number
    try:
        mine.write_text(json.dumps({"key": key, "created_ns": time.time_ns()}), encoding="utf-8")
        return _put(mine, job) or _key(job) == key
    finally:
        mine.unlink(missing_ok=True)


def _put(mine: Path, job: Path) -> bool:
    """Give the file its name if none has it: whole at once, and only for the first rank."""
    try:
        os.link(mine, job)
    except FileExistsError:
        return False
    except OSError:  # a file system without links: the last one to write wins, all the same key
        mine.replace(job)
    return True


def _key(job: Path) -> str | None:
    """Which launch an attempt belongs to; null where a crash of the host left half a file."""
    try:
        return str(json.loads(job.read_text(encoding="utf-8"))["key"])
    except (ValueError, LookupError, TypeError):
        return None


def _claim(folder: Path, rank: int) -> bool:
    """Whether no other process has this rank of the attempt: its file of facts is made here."""
    try:
        facts_path(folder, rank).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
