"""The files behind the sources, what each says of itself, and the rank it is of."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

from tracekit.collectors import Collector, Peek
from tracekit.collectors.chrome_trace.repair import cleaned
from tracekit.errors import InputError, UsageError

_RANK_IN_NAME = re.compile(r"(?:^|[^a-z])(?:rank|worker)[-_. ]?0*(\d+)", re.IGNORECASE)
_PROCESS_IN_NAME = re.compile(r"(.+_\d+)\.\d{10,}\.pt\.trace\.json")
"""Host and process, and then the time, as torch's tensorboard_trace_handler names each window."""
SIDECAR = ".tracekit.json"
IN_THE_FILE = "distributedInfo"
"""Where the rank of a file is known from that says it itself."""
MAX_DIGITS = 6
"""No job has a million ranks."""
RANK_FROM_EXAMPLE = r"--rank-from 'trace_(\d+)\.json'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One trace file, what it says of itself, and its rank where that is known."""

    path: Path
    collector: Collector
    peek: Peek
    rank: int | None
    rank_source: str
    world_size: int | None
    host: str | None = None


def rank_pattern(rank_from: str | None) -> re.Pattern[str] | None:
    """What finds the rank in a path.

    Raises:
        UsageError: it is no regular expression with one group.
    """
    if rank_from is None:
        return None
    try:
        pattern = re.compile(rank_from)
    except re.error as error:
        raise UsageError(
            f"--rank-from {rank_from}: {error}", hint=f"Like {RANK_FROM_EXAMPLE}"
        ) from error
    if pattern.groups != 1:
        raise UsageError(
            f"--rank-from {rank_from}: needs exactly one group, has {pattern.groups}",
            hint=f"Like {RANK_FROM_EXAMPLE}",
        )
    return pattern


def candidates_in(
    path: Path, collector: Collector, pattern: re.Pattern[str] | None
) -> list[Candidate]:
    """The ranks in a file: one, or as many as it says it holds."""
    peek = collector.peek(path)
    if not peek.ranks:
        return [_candidate(path, collector, peek, pattern)]
    return [
        Candidate(
            path=path,
            collector=collector,
            peek=peek,
            rank=rank,
            rank_source=IN_THE_FILE,
            world_size=peek.world_size,
        )
        for rank in peek.ranks
    ]


def _candidate(
    path: Path, collector: Collector, peek: Peek, pattern: re.Pattern[str] | None
) -> Candidate:
    """Rank of a file: what the trace says, else a sidecar, else --rank-from, else the file name."""
    sidecar = _sidecar(path)
    named = pattern.search(str(path)) if pattern else None
    guess = _RANK_IN_NAME.search(path.name) or _RANK_IN_NAME.search(path.parent.name)
    stated = {
        IN_THE_FILE: peek.rank,
        "sidecar": sidecar.get("rank"),
        "--rank-from": named.group(1) if named else None,
        "file name": guess.group(1) if guess and not pattern else None,
    }
    numbers = {source: _count(rank) for source, rank in stated.items()}
    known = [(rank, source) for source, rank in numbers.items() if rank is not None]
    rank, rank_source = known[0] if known else (None, "not known")
    host = sidecar.get("host")
    return Candidate(
        path=path,
        collector=collector,
        peek=peek,
        rank=rank,
        rank_source=rank_source,
        world_size=peek.world_size or _count(sidecar.get("world_size")) or None,
        host=host if isinstance(host, str) else None,
    )


def _count(value: object) -> int | None:
    """A rank or a number of ranks; None for anything else."""
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS else None


def _sidecar(path: Path) -> dict[str, object]:
    """Facts that a collector of ours left beside the trace: NAME.tracekit.json."""
    stem = re.sub(r"\.json(\.gz)?$", "", path.name)
    try:
        facts = json.loads(cleaned(path.with_name(f"{stem}{SIDECAR}").read_bytes()))
    except (OSError, ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def without_copies(candidates: list[Candidate]) -> tuple[list[Candidate], list[str]]:
    """Drop files that repeat another one (the same trace packed and unpacked, or copied).

    A leftover `.tmp` is the copy, since it is cut.
    """
    kept: dict[tuple[str, int | None], Candidate] = {}
    notes = []
    for candidate in sorted(candidates, key=lambda candidate: candidate.path.suffix == ".tmp"):
        key = (candidate.peek.digest, candidate.rank)
        if key in kept:
            notes.append(f"{candidate.path}: a duplicate of {kept[key].path}")
        else:
            kept[key] = candidate
    return list(kept.values()), notes


def without_older(candidates: list[Candidate]) -> tuple[list[Candidate], list[str]]:
    """Of files of one name that were taken of one rank, in other formats too, the latest one."""
    latest: dict[tuple[str, Path, int | None], Candidate] = {}
    for each in candidates:
        key = _taken_of(each)
        if key not in latest or each.peek.snapshot > latest[key].peek.snapshot:
            latest[key] = each
    kept = set(map(id, latest.values()))
    notes = [
        f"{each.path}: {latest[_taken_of(each)].path.name} was taken of this rank later, or says "
        "more"
        for each in candidates
        if id(each) not in kept
    ]
    return [each for each in candidates if id(each) in kept], notes


def _taken_of(candidate: Candidate) -> tuple[str, Path, int | None]:
    is_snapshot = bool(candidate.peek.snapshot)
    path = candidate.path.with_suffix("") if is_snapshot else candidate.path
    return candidate.collector.id, path, candidate.rank


def ranked(candidates: list[Candidate]) -> tuple[list[Candidate], list[str]]:
    """Files whose rank is known. Without one, those of a single process are rank 0.

    Raises:
        InputError: there are several without one.
    """
    known = [candidate for candidate in candidates if candidate.rank is not None]
    unknown = [candidate for candidate in candidates if candidate.rank is None]
    if not candidates:
        return [], []
    if not known and len(unknown) == 1:
        return [replace(unknown[0], rank=0, rank_source="the only file: taken as rank 0")], []
    if not known and len({_process(candidate.path) for candidate in unknown}) == 1:
        source = "the only process: taken as rank 0"
        return [replace(each, rank=0, rank_source=source) for each in unknown], []
    if not known:
        names = ", ".join(candidate.path.name for candidate in unknown[:3])
        raise InputError(
            f"{len(unknown)} traces, and none says its rank: {names} …",
            hint=f"Say where the rank stands in the path: {RANK_FROM_EXAMPLE}",
        )
    notes = [f"{candidate.path}: says no rank (see {RANK_FROM_EXAMPLE})" for candidate in unknown]
    return known, notes


def _process(path: Path) -> str:
    """What tells the process of a trace, by its name; the path where that does not."""
    named = _PROCESS_IN_NAME.match(path.name)
    return named[1] if named else str(path)
