"""Files that say more of a job than its traces do: logs and measurements join the run beside them.

A log joins the run whose number of ranks it has; a measurement of the fabric any. Both join the
runs that lie nearest: in the same folder, below it or above it. Where the sources hold one run
only, that is the nearest.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.collectors import Collector, Options, RankFile, collectors
from tracekit.errors import TracekitError
from tracekit.store import Capture, Check, SourceIdentity, path_text, rank_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.collectors.sources.candidates import Candidate
    from tracekit.collectors.sources.grouping import FoundRun


@dataclass(frozen=True, slots=True)
class Text:
    """A file that may join a run: the ranks that it tells of."""

    path: Path
    collector: str
    ranks: frozenset[int]
    world_size: int | None
    is_of_any_job: bool


def texts(candidates: Sequence[Candidate]) -> list[Text]:
    """The files behind the candidates, with all ranks of each, in order of path."""
    by_path: dict[Path, list[Candidate]] = defaultdict(list)
    for each in candidates:
        by_path[each.path].append(each)
    return [
        Text(
            path=path,
            collector=found[0].collector.id,
            ranks=frozenset(each.rank for each in found if each.rank is not None),
            world_size=found[0].world_size,
            is_of_any_job=found[0].peek.is_of_any_job,
        )
        for path, found in sorted(by_path.items())
    ]


def joined(
    runs: Sequence[FoundRun], files: Sequence[Text]
) -> tuple[list[FoundRun], list[Text], list[str]]:
    """The runs with the files that belong to them, the files that belong to none, and notes."""
    left: list[Text] = []
    notes: list[str] = []
    found = list(runs)
    for text in files:
        fits = {number: run for number, run in enumerate(found) if _fits(text, run)}
        near = _nearest(text.path, fits, is_only=len(found) == 1)
        if not near:
            left.append(text)
        for number in near:
            of_all = found[number].files[0].rank  # takes what is said of all ranks together
            ranks = {of_all} if text.is_of_any_job else text.ranks
            found[number] = _with(found[number], dict.fromkeys(ranks, (text.collector, text.path)))
            without = sorted(text.ranks - {file.rank for file in found[number].files})
            if without and not text.is_of_any_job:
                some = ", ".join(map(str, without[:4])) + (", …" if len(without) > 4 else "")
                notes.append(f"{text.path}: ranks without a trace are left out of it: {some}")
    return found, left, notes


def joined_whole(runs: Sequence[FoundRun], others: Sequence[FoundRun]) -> list[FoundRun]:
    """The runs with the others that belong to them as a whole, and those that belong to none.

    Of several of one collector that fit a run the latest joins it.
    """
    found = list(runs)
    alone: list[FoundRun] = []
    taken: set[tuple[int, str]] = set()
    for other in sorted(others, key=lambda other: -(other.started_ns or 0)):
        ranks = {file.rank for file in other.files}
        fits = {
            number: run
            for number, run in enumerate(found[: len(runs)])
            if run.world_size == other.world_size and ranks <= {file.rank for file in run.files}
        }
        near = _nearest(other.files[0].path, fits, is_only=len(runs) == 1)
        if len(near) != 1 or (near[0], other.collector.id) in taken:
            alone.append(other)
            continue
        taken.add((near[0], other.collector.id))
        more = {file.rank: (other.collector.id, file.path) for file in other.files}
        found[near[0]] = _with(found[near[0]], more)
    return [*found, *alone]


def _nearest(path: Path, runs: Mapping[int, FoundRun], *, is_only: bool) -> list[int]:
    """Numbers of the runs that a file belongs to, of those that it fits."""
    place = path.resolve().parent
    depths: dict[int, int] = {}
    for number, run in runs.items():
        folders = [file.path.resolve().parent for file in run.files]
        shared = [_depth_shared(place, folder) for folder in folders]
        is_near = any(place.is_relative_to(f) or f.is_relative_to(place) for f in folders)
        if is_near or is_only:
            depths[number] = max(shared)
    return [number for number, depth in depths.items() if depth == max(depths.values())]


def _fits(text: Text, run: FoundRun) -> bool:
    """Whether a file may be of the run's job."""
    if text.is_of_any_job:
        return True
    is_as_large = text.world_size is None or text.world_size == run.world_size
    return is_as_large and any(file.rank in text.ranks for file in run.files)


def _depth_shared(one: Path, other: Path) -> int:
    return sum(a == b for a, b in zip(one.parts, other.parts, strict=False))


def _with(run: FoundRun, more: Mapping[int, tuple[str, Path]]) -> FoundRun:
    """The run whose ranks take in a file each, by its collector and path."""
    return replace(
        run,
        files=tuple(
            replace(file, also=(*file.also, more[file.rank])) if file.rank in more else file
            for file in run.files
        ),
    )


def identities(file: RankFile) -> tuple[SourceIdentity, ...]:
    """The files beside a rank's as they are now.

    Raises:
        OSError: one of them is gone.
    """
    stats = [(path, path.stat()) for _, path in file.also]
    return tuple(
        SourceIdentity(path=path_text(p), size_bytes=s.st_size, modified_ns=s.st_mtime_ns)
        for p, s in stats
    )


def with_besides(
    collector: Collector, capture: Capture, file: RankFile, folder: Path, options: Options
) -> Capture:
    """Add what the files beside a rank's trace say. One that cannot be read costs no trace."""
    known = collectors()
    others = [(known[other], path) for other, path in file.also]
    for table in {table for other, _ in others for table in other.produces}:
        if table not in collector.produces:  # of an earlier conversion
            rank_path(folder, table.name, file.rank).unlink(missing_ok=True)
    for other, path in others:
        if other.beside is None:
            continue
        try:
            told = other.beside(replace(file, path=path), folder, options)
        except TracekitError as error:
            check = Check(
                check="file beside not read", severity="warning", count=1, detail=error.message
            )
            capture = replace(capture, quality=(*capture.quality, check))
            continue
        capture = replace(
            capture,
            host=capture.host or told.host,
            n_rows=capture.n_rows | told.n_rows,
            versions=told.versions | capture.versions,
            environment=capture.environment | told.environment,
            quality=(*capture.quality, *told.quality),
        )
    codes = dict.fromkeys((capture.code, *(other.code() for other, _ in others)))
    return replace(capture, code="+".join(codes), beside=identities(file))
