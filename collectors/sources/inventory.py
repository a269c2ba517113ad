"""What lies behind the sources: the runs, and what was left out with the reason."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tracekit.collectors import collectors, sniffed
from tracekit.collectors.sources.besides import joined, joined_whole, texts
from tracekit.collectors.sources.candidates import (
    SIDECAR,
    candidates_in,
    rank_pattern,
    without_copies,
    without_older,
)
from tracekit.collectors.sources.files import expanded, why_no_trace
from tracekit.collectors.sources.grouping import FoundRun, grouped, run_of, with_unique_names
from tracekit.errors import InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tracekit.collectors.sources.besides import Text
    from tracekit.collectors.sources.candidates import Candidate


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
    pattern = rank_pattern(rank_from)
    found: list[Candidate] = []
    files, not_expanded = expanded(sources, unpacked)
    left_out = list(not_expanded)
    for path in files:
        collector = sniffed(path) if path.is_file() else None
        if collector is None:
            if not _belongs_to_another(path):
                left_out.append(f"{path}: {_why_not(path)}")
            continue
        try:
            found += candidates_in(path, collector, pattern)
        except OSError as error:
            left_out.append(f"{path}: cannot be read: {error.strerror}")
    if not found:
        raise InputError(_nothing(sources, left_out), hint=_nothing_hint(left_out))
    unique, copies = without_copies(found)
    latest, older = without_older(unique)
    runs, notes = _runs(latest)
    runs.sort(
        key=lambda run: (
            run.collector.beside is not None,  # what lies beside traces is not looked for first
            -len(run.files),
            -(run.started_ns or 0),
            run.name,
        )
    )
    left_out += [*copies, *older, *notes]
    return Inventory(runs=tuple(with_unique_names(runs)), left_out=tuple(left_out))


def _runs(candidates: list[Candidate]) -> tuple[list[FoundRun], list[str]]:
    """Runs of traces first; what says more of a job joins them, or else is a run of its own."""
    runs, notes = grouped([each for each in candidates if each.collector.beside is None])
    others = [each for each in candidates if each.collector.beside is not None]
    own, more = _grouped_beside(runs, [each for each in others if each.collector.is_joined_whole])
    runs, notes = joined_whole(runs, own), notes + more
    runs, more = _with_logs(runs, [each for each in others if not each.collector.is_joined_whole])
    return runs, notes + more


def _grouped_beside(
    runs: Sequence[FoundRun], candidates: list[Candidate]
) -> tuple[list[FoundRun], list[str]]:
    """Runs of files that may be left out, where there are others: those without ranks are noted."""
    try:
        return grouped(candidates)
    except InputError as error:
        if not runs:
            raise
        return [], [error.message]


def _with_logs(
    runs: list[FoundRun], candidates: list[Candidate]
) -> tuple[list[FoundRun], list[str]]:
    """The runs with the logs and measurements beside them; those that lie alone are their own."""
    found, alone, notes = joined(runs, texts(candidates))
    logs = {text.path for text in alone if not text.is_of_any_job}
    own, more = _grouped_beside(runs, [each for each in candidates if each.path in logs])
    own, rest, even_more = joined(own, [text for text in alone if text.is_of_any_job])
    return [*found, *own, *_measurements(candidates, rest)], [*notes, *more, *even_more]


def _measurements(candidates: list[Candidate], files: list[Text]) -> list[FoundRun]:
    """Measurements that no job lies beside: those of one folder are one run."""
    runs = []
    for folder in dict.fromkeys(text.path.parent for text in files):
        first, *others = (text for text in files if text.path.parent == folder)
        run = run_of([next(each for each in candidates if each.path == first.path)])
        also = tuple((text.collector, text.path) for text in others)
        runs.append(replace(run, files=(replace(run.files[0], also=also),)))
    return runs


def _belongs_to_another(path: Path) -> bool:
    """Whether a file is read along with another one: no word is lost about it."""
    if path.name.endswith(SIDECAR):
        return True
    return path.is_file() and any(each.is_part(path) for each in collectors().values())


def _why_not(path: Path) -> str:
    """What a file lacks that a collector would need, else what it is."""
    reasons = (each.why_not(path) for each in collectors().values() if path.is_file())
    return next((reason for reason in reasons if reason), None) or why_no_trace(path)


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
