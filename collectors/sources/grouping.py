"""Which run the files belong to.

Runs are told apart by what the files say (job, group trace id, world size) or by a rank that occurs
twice, never by clock time alone: clocks of one run may differ by seconds.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tracekit.collectors import Collector, RankFile
from tracekit.collectors.sources.candidates import ranked
from tracekit.store import path_text

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.collectors.sources.candidates import Candidate

_Key = tuple[str, str | None, int | None]
"""Collector, what tells runs apart, and the number of ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRun:
    """The files of one run, one a rank, in order of rank."""

    name: str
    collector: Collector
    files: tuple[RankFile, ...]
    world_size: int
    started_ns: int | None
    are_all: bool = False

    @property
    def expected_ranks(self) -> tuple[int, ...]:
        """Ranks of the world; where those of a file stand for all, these."""
        if self.are_all:
            return tuple(file.rank for file in self.files)
        return tuple(range(self.world_size))

    @property
    def missing_ranks(self) -> tuple[int, ...]:
        """Expected ranks without a file."""
        found = {file.rank for file in self.files}
        return tuple(rank for rank in self.expected_ranks if rank not in found)


def grouped(candidates: list[Candidate]) -> tuple[list[FoundRun], list[str]]:
    """Runs of the files whose rank is known, and what was left out.

    Raises:
        InputError: there are several files, and none says its rank.
    """
    known, unranked = ranked(candidates)
    return [run for group in _by_key(known) for run in _split(group)], unranked


def _by_key(candidates: list[Candidate]) -> list[list[Candidate]]:
    """Groups of files that say they belong to one run, or do not say that they do not.

    A file that leaves out what others say (a cut one has lost its end) joins the one group it fits.
    """
    groups: dict[_Key, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        key = (candidate.collector.id, candidate.peek.run_key, candidate.world_size)
        groups[key].append(candidate)
    for key in sorted(groups, key=lambda key: (key[1] is None) + (key[2] is None)):
        fitting = [other for other in groups if other != key and _says_no_less(other, key)]
        if len(fitting) == 1:
            groups[fitting[0]] += groups.pop(key)
    return list(groups.values())


def _says_no_less(key: _Key, other: _Key) -> bool:
    return key[0] == other[0] and all(
        of_other in (None, own) for own, of_other in zip(key[1:], other[1:], strict=True)
    )


def _split(group: list[Candidate]) -> list[FoundRun]:
    """Split files of one key where a rank occurs twice: by folder, else by nearness of start."""
    if not _repeats(group):
        return [run_of(group)]
    shared = defaultdict(list)
    for candidate in group:
        if candidate.peek.trace_id:
            shared[candidate.peek.trace_id].append(candidate)
    if any(len(files) > 1 for files in shared.values()) and not any(map(_repeats, shared.values())):
        rest = [c for c in group if len(shared.get(c.peek.trace_id or "", ())) <= 1]
        runs = [run_of(files) for files in shared.values() if len(files) > 1]
        return runs + (_split(rest) if rest else [])
    folders = _by_folder(group)
    if len(folders) > 1:
        return [run for files in folders for run in _split(files)]
    return [run_of(files) for files in _by_start(group)]


def _by_folder(group: list[Candidate]) -> list[list[Candidate]]:
    """Files by folder; where each folder holds one rank only (`rank_3/`), by the folder above."""
    level = 0
    while True:
        folders = defaultdict(list)
        for candidate in group:
            folders[candidate.path.resolve().parents[level]].append(candidate)
        one_rank_each = all(len({c.rank for c in files}) == 1 for files in folders.values())
        deepest = min(len(candidate.path.resolve().parents) for candidate in group)
        if len(folders) == 1 or not one_rank_each or level + 1 == deepest:
            return list(folders.values())
        level += 1


def _repeats(group: list[Candidate]) -> bool:
    return max(Counter(candidate.rank for candidate in group).values()) > 1


def _by_start(group: list[Candidate]) -> list[list[Candidate]]:
    """One list a run: the rank that occurs most often gives the starts, others join the nearest."""
    most, _ = Counter(candidate.rank for candidate in group).most_common(1)[0]

    def started_ns(candidate: Candidate) -> int:
        return candidate.peek.started_ns or 0

    seeds = sorted((c for c in group if c.rank == most), key=started_ns)
    runs = [[seed] for seed in seeds]
    rest = [candidate for candidate in group if candidate.rank != most]
    pairs = sorted(
        (
            (abs(started_ns(c) - started_ns(seed)), i, j)
            for i, c in enumerate(rest)
            for j, seed in enumerate(seeds)
        ),
    )
    placed: set[int] = set()
    for _, i, j in pairs:
        candidate = rest[i]
        if i not in placed and all(other.rank != candidate.rank for other in runs[j]):
            runs[j].append(candidate)
            placed.add(i)
    return runs


def run_of(group: list[Candidate]) -> FoundRun:
    """The run of these files, one a rank."""
    files = tuple(
        RankFile(
            path=candidate.path,
            rank=candidate.rank or 0,
            rank_source=candidate.rank_source,
            world_size=candidate.world_size,
            host=candidate.host,
            is_first=number == 0,
        )
        for number, candidate in enumerate(sorted(group, key=lambda each: each.rank or 0))
    )
    starts = [c.peek.started_ns for c in group if c.peek.started_ns is not None]
    stated = max((c.world_size for c in group if c.world_size), default=0)
    return FoundRun(
        name=_name(group),
        collector=group[0].collector,
        files=files,
        world_size=max(stated, files[-1].rank + 1 if stated or len(files) > 1 else 1),
        started_ns=min(starts, default=None),
        are_all=any(candidate.peek.are_all for candidate in group),
    )


def _name(group: list[Candidate]) -> str:
    """The job's own name, else the folder that holds the files, else the file."""
    if group[0].peek.run_key:
        return group[0].peek.run_key
    if len(group) == 1:
        return re.sub(r"(\.pt)?(\.trace)?\.json(\.gz)?$", "", path_text(group[0].path.name))
    folders = {candidate.path.parent for candidate in group}
    common = next(iter(folders)) if len(folders) == 1 else _common(list(folders))
    return path_text(common.resolve().name) or "run"


def _common(folders: list[Path]) -> Path:
    first = folders[0].resolve()
    return next(
        parent
        for parent in first.parents
        if all(f.resolve().is_relative_to(parent) for f in folders)
    )


def with_unique_names(runs: list[FoundRun]) -> list[FoundRun]:
    """Runs of one name are told apart by their start (UTC), else by a number."""
    counts = Counter(run.name for run in runs)
    seen: Counter[str] = Counter()
    named = []
    for run in runs:
        name = run.name
        if counts[name] > 1 and run.started_ns:
            name += datetime.fromtimestamp(run.started_ns / 1e9, UTC).strftime("@%Y-%m-%dT%H:%M:%S")
        seen[name] += 1
        named.append(replace(run, name=name if seen[name] == 1 else f"{name}#{seen[name]}"))
    return named
