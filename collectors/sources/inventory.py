"""Which run the files belong to, and which rank each one is.

Runs are told apart by what the files say (job, group trace id, world size) or by a rank that occurs
twice, never by clock time alone: clocks of one run may differ by seconds.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.collectors import Collector, Peek, RankFile, collectors, sniffed
from tracekit.collectors.chrome_trace.repair import cleaned
from tracekit.collectors.sources.besides import Text, joined, texts
from tracekit.collectors.sources.files import expanded, why_no_trace
from tracekit.errors import InputError, UsageError
from tracekit.store import path_text

if TYPE_CHECKING:
    from collections.abc import Sequence

_RANK_IN_NAME = re.compile(r"(?:^|[^a-z])(?:rank|worker)[-_. ]?0*(\d+)", re.IGNORECASE)
_PROCESS_IN_NAME = re.compile(r"(.+_\d+)\.\d{10,}\.pt\.trace\.json")
"""Host and process, and then the time, as torch's tensorboard_trace_handler names each window."""
_SIDECAR = ".tracekit.json"
IN_THE_FILE = "distributedInfo"
"""Where the rank of a file is known from that says it itself."""
MAX_DIGITS = 6
"""No job has a million ranks."""
_Key = tuple[str, str | None, int | None]
"""Collector, what tells runs apart, and the number of ranks."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What lies behind the sources: runs, most ranks first; what was left out, with the reason."""

    runs: tuple[FoundRun, ...]
    left_out: tuple[str, ...]

    def pick(self, name: str | None) -> FoundRun:
        """The run of that name, or the one with most ranks (of those, the latest).

        Raises:
            UsageError: no run is called so; the message lists those there are.
        """
        if name is None:
            return self.runs[0]
        for run in self.runs:
            if run.name == name:
                return run
        names = ", ".join(run.name for run in self.runs)
        raise UsageError(f"--run {name}: no such run", hint=f"Runs here: {names}")


def inventory(
    sources: Sequence[str | Path], unpacked: Path, rank_from: str | None = None
) -> Inventory:
    """Find the runs behind the sources.

    Raises:
        InputError: nothing there is a trace, or ranks cannot be told.
        UsageError: `rank_from` is no regular expression with one group.
    """
    pattern = _pattern(rank_from)
    candidates: list[Candidate] = []
    files, notes = expanded(sources, unpacked)
    left_out = list(notes)
    for path in files:
        collector = sniffed(path) if path.is_file() else None
        if collector is None:
            if not _belongs_to_another(path):
                left_out.append(f"{path}: {_why_not(path)}")
            continue
        try:
            candidates += _candidates(path, collector, pattern)
        except OSError as error:
            left_out.append(f"{path}: cannot be read: {error.strerror}")
    if not candidates:
        raise InputError(_nothing(sources, left_out), hint=_nothing_hint(left_out))
    unique, copies = _without_copies(candidates)
    left_out += copies
    runs, unranked = _runs([each for each in unique if each.collector.beside is None])
    left_out += unranked
    runs, unread = _with_texts(runs, [each for each in unique if each.collector.beside])
    left_out += unread
    runs.sort(
        key=lambda run: (
            run.collector.beside is not None,  # what lies beside traces is not looked for first
            -len(run.files),
            -(run.started_ns or 0),
            run.name,
        )
    )
    return Inventory(runs=tuple(_with_unique_names(runs)), left_out=tuple(left_out))


def _runs(candidates: list[Candidate]) -> tuple[list[FoundRun], list[str]]:
    """Runs of the files whose rank is known, and what was left out."""
    ranked, unranked = _ranked(candidates)
    return [run for group in _by_key(ranked) for run in _split(group)], unranked


def _with_texts(
    runs: list[FoundRun], candidates: list[Candidate]
) -> tuple[list[FoundRun], list[str]]:
    """The runs with the logs and measurements beside them; those that lie alone are their own."""
    found, alone, notes = joined(runs, texts(candidates))
    logs = {text.path for text in alone if not text.is_of_any_job}
    own: list[FoundRun] = []
    try:
        own, unranked = _runs([each for each in candidates if each.path in logs])
        notes += unranked
    except InputError as error:
        if not runs:
            raise
        notes.append(error.message)
    own, rest, more = joined(own, [text for text in alone if text.is_of_any_job])
    return [*found, *own, *_measurements(candidates, rest)], [*notes, *more]


def _measurements(candidates: list[Candidate], files: list[Text]) -> list[FoundRun]:
    """Measurements that no job lies beside: those of one folder are one run."""
    runs = []
    for folder in dict.fromkeys(text.path.parent for text in files):
        first, *others = (text for text in files if text.path.parent == folder)
        run = _run([next(each for each in candidates if each.path == first.path)])
        also = tuple((text.collector, text.path) for text in others)
        runs.append(replace(run, files=(replace(run.files[0], also=also),)))
    return runs


def _belongs_to_another(path: Path) -> bool:
    """Whether a file is read along with another one: no word is lost about it."""
    if path.name.endswith(_SIDECAR):
        return True
    return path.is_file() and any(each.is_part(path) for each in collectors().values())


def _why_not(path: Path) -> str:
    """What a file lacks that a collector would need, else what it is."""
    reasons = (each.why_not(path) for each in collectors().values() if path.is_file())
    return next((reason for reason in reasons if reason), None) or why_no_trace(path)


def _pattern(rank_from: str | None) -> re.Pattern[str] | None:
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


def _candidates(
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
        facts = json.loads(cleaned(path.with_name(f"{stem}{_SIDECAR}").read_bytes()))
    except (OSError, ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _without_copies(candidates: list[Candidate]) -> tuple[list[Candidate], list[str]]:
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


def _ranked(candidates: list[Candidate]) -> tuple[list[Candidate], list[str]]:
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
        return [_run(group)]
    shared = defaultdict(list)
    for candidate in group:
        if candidate.peek.trace_id:
            shared[candidate.peek.trace_id].append(candidate)
    if any(len(files) > 1 for files in shared.values()) and not any(map(_repeats, shared.values())):
        rest = [c for c in group if len(shared.get(c.peek.trace_id or "", ())) <= 1]
        runs = [_run(files) for files in shared.values() if len(files) > 1]
        return runs + (_split(rest) if rest else [])
    folders = _by_folder(group)
    if len(folders) > 1:
        return [run for files in folders for run in _split(files)]
    return [_run(files) for files in _by_start(group)]


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


def _run(group: list[Candidate]) -> FoundRun:
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


def _with_unique_names(runs: list[FoundRun]) -> list[FoundRun]:
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


def _nothing(sources: Sequence[str | Path], left_out: list[str]) -> str:
    if len(left_out) == 1:
        return left_out[0]
    where = ", ".join(str(source) for source in sources)
    return (
        f"{where}: no trace among {len(left_out)} files" if left_out else f"{where}: no file in it"
    )


def _nothing_hint(left_out: list[str]) -> str:
    shown = "; ".join(left_out[:3])
    expected = f"tracekit reads: {'; '.join(each.title for each in collectors().values())}."
    return expected if len(left_out) <= 1 else f"{expected} Looked at: {shown} …"
