"""What a hook recorded → runs: `RUN_DIR/attempt=0/step=00000010/` is one, of one window of steps.

Each rank's part waits in `raw/` there until it is converted, by a process that the hook starts or,
where that was killed, by `tracekit convert RUN_DIR`. Both may work on the same window at once:
a rank is locked by the one who converts it.

Run:
    python -m tracekit.collectors.sources.recorded WINDOW --rank 3
"""

from __future__ import annotations

import fcntl
import logging
import os
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tracekit.collectors import Options, RankFile
from tracekit.collectors.kineto import COLLECTOR
from tracekit.collectors.sources import noted
from tracekit.collectors.sources.conversion import converted
from tracekit.collectors.sources.hang_dumps import join_hang_dumps
from tracekit.collectors.sources.windows import (
    JOB,
    WindowFolder,
    capture_of,
    is_converted,
    is_recording,
    picked,
    rank_of,
    windows,
)
from tracekit.errors import InputError, TracekitError
from tracekit.store import (
    MANIFEST,
    RAW,
    Capture,
    Manifest,
    Run,
    capture_path,
    path_text,
    read_json,
    tracekit_version,
    write_json,
    write_table,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

log = logging.getLogger(__name__)
_NICE = 19


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """When an attempt began, Unix ns: the epoch of its runs; and what tells launches apart."""

    key: str
    created_ns: int


def finished(
    window: WindowFolder,
    *,
    rank: int | None = None,
    keeps_raw: bool = False,
    on_capture: Callable[[Capture], None] | None = None,
) -> Run:
    """Convert what waits, of one rank or of all, and write the manifest of all that is there.

    Raises:
        InputError: no rank can be read.
    """
    job = _job(window.folder.parent / JOB)
    failures: list[TracekitError] = []
    for path in window.raw:
        if rank not in {None, rank_of(path)}:
            continue
        with _alone(window, rank_of(path)):
            if not path.exists() or is_converted(window, path):
                continue  # by the one who was at it
            # One that is there after its conversion, by another version, was to be kept.
            is_kept = keeps_raw or capture_of(window, path) is not None
            outcome = _converted(window, path, job, keeps_raw=is_kept)
        if isinstance(outcome, TracekitError):
            failures.append(outcome)
        elif on_capture is not None:
            on_capture(outcome)
    note = None
    if rank is None:
        with suppress(OSError):  # moved to where nothing may be written
            note = join_hang_dumps(window, job.created_ns)
    return _run(window, job, failures, note)


def _job(path: Path) -> Job:
    hint = 'It holds {"key": "any", "created_ns": 0}: a time before the first step, Unix ns'
    try:
        job = read_json(path, Job)
    except InputError as error:
        raise InputError(error.message, hint=hint) from error
    if not 0 <= job.created_ns <= noted.LATEST_NS:
        raise InputError(f"{path}: created_ns is {job.created_ns}: no Unix time in ns", hint=hint)
    return job


@contextmanager
def _alone(window: WindowFolder, rank: int) -> Iterator[None]:
    """Wait until no other process converts this rank; a process that is killed lets go of it.

    Whoever finds nothing left to convert takes the lock away, and the folder after its last one.
    """
    raw = window.folder / RAW
    path = raw / f"rank={rank:06d}.lock"
    try:
        lock = path.open("wb")
    except FileNotFoundError:  # others have converted all of it
        yield
        return
    except OSError as error:
        hint = "Copy the folder to where it may be converted, then analyse the copy"
        raise InputError(f"{path}: cannot be written: {error.strerror}", hint=hint) from error
    with lock:
        _wait_for(lock, path)
        yield
        if not any(raw.glob(f"rank={rank:06d}.json*")):
            path.unlink(missing_ok=True)
            with suppress(OSError):  # other ranks' traces wait in it
                raw.rmdir()


def _wait_for(lock: IO[bytes], path: Path) -> None:
    """Take the lock. Without locks on a file system, the later of two overwrites with the same."""
    with suppress(OSError):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.info("%s: another process converts this rank; waiting for it", path)
            fcntl.flock(lock, fcntl.LOCK_EX)


def _converted(
    window: WindowFolder, path: Path, job: Job, *, keeps_raw: bool
) -> Capture | TracekitError:
    """Convert one rank's trace and what lies beside it; then the trace is removed."""
    rank = rank_of(path)
    attempt, raw = window.folder.parent, window.folder / RAW
    who = noted.facts_of(attempt, rank)
    told = noted.window_of(raw, rank)
    file = RankFile(
        path=path,
        rank=rank,
        rank_source="hook",
        world_size=who.world_size if who else None,
        host=who.host if who else None,
    )
    options = Options(epoch_ns=job.created_ns)
    outcome = converted(COLLECTOR, window.folder, options, file)
    if isinstance(outcome, TracekitError):
        return outcome
    n_rows = dict(outcome.n_rows)
    for table, rows in (
        ("samples", noted.sample_rows(told, job.created_ns)),
        ("telemetry", noted.telemetry_rows_around(attempt, who, told, job.created_ns)),
    ):
        write_table(window.folder, table, rank, rows)
        if rows.height:
            n_rows[table] = rows.height
    capture = replace(
        outcome,
        n_rows=n_rows,
        host=who.host if who else outcome.host,
        world_size=who.world_size if who else outcome.world_size,
        versions=outcome.versions | (who.versions if who else {}),
        facts=who,
        clocks=noted.clock_readings(attempt, who),
        quality=(*outcome.quality, *noted.checks(told)),
    )
    write_json(capture_path(window.folder, rank), capture)
    if not (keeps_raw or (told is not None and told.keeps_raw)):
        for each in raw.glob(f"rank={rank:06d}.*"):
            if each.suffix != ".lock":  # the others wait at it
                each.unlink(missing_ok=True)
    return capture


def _run(
    window: WindowFolder, job: Job, failures: list[TracekitError], note: str | None = None
) -> Run:
    """The run of all ranks that are converted by now.

    Other ranks' converters write it too: whoever finds more than it has written writes again, so
    that the last one to look leaves it whole.
    """
    folder = window.folder
    while True:
        paths = sorted((folder / "captures").glob("*.json"))
        captures = [read_json(path, Capture) for path in paths]
        if not captures:
            raise failures[0] if failures else InputError(f"{folder}: no rank is converted yet")
        manifest = _manifest(window, job, captures, failures)
        if note:
            manifest = replace(manifest, others=(note, *manifest.others))
        try:
            write_json(folder / MANIFEST, manifest)
        except OSError:
            if not (folder / MANIFEST).exists():
                raise
            return Run(folder, manifest)  # moved to where nothing may be written, it differs
        if sorted((folder / "captures").glob("*.json")) == paths:
            return Run(folder, manifest)


def _manifest(
    window: WindowFolder, job: Job, captures: list[Capture], failures: list[TracekitError]
) -> Manifest:
    known = [capture.facts for capture in captures if capture.facts is not None]
    world_size = max(
        [capture.world_size or 0 for capture in captures]
        + [capture.rank + 1 for capture in captures]
    )
    ranks = {capture.rank for capture in captures}
    missing = tuple(rank for rank in range(world_size) if rank not in ranks)
    others = [f"not converted: {failure.message}" for failure in failures]
    waiting = [rank_of(path) for path in window.raw if rank_of(path) not in ranks]
    if waiting and not failures:
        others.append(f"recorded, not converted yet: rank {', '.join(map(str, waiting[:8]))}")
    return Manifest(
        tracekit_version=tracekit_version(),
        name=window.name,
        source=path_text(window.folder.absolute()),
        epoch_ns=job.created_ns,
        world_size=world_size,
        captures=tuple(captures),
        missing_ranks=missing,
        layout=known[0].layout.sizes if known else {},
        environment=_common([each.environment for each in known]),
        other_runs=tuple(
            each.name for each in windows(window.folder.parents[1]) if each.name != window.name
        ),
        others=tuple(others),
    )


def _common(all_ranks: list[dict[str, str]]) -> dict[str, str]:
    """Variables that have the same value on all ranks."""
    if not all_ranks:
        return {}
    return {
        name: value
        for name, value in all_ranks[0].items()
        if all(other.get(name) == value for other in all_ranks)
    }


def main() -> None:
    """Convert one rank's part of a window, yielding to everything else on the machine."""
    import argparse  # noqa: PLC0415

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("window", type=Path)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--keep-raw", action="store_true")
    chosen = parser.parse_args()
    os.nice(_NICE)
    folder: Path = chosen.window
    attempt, step = (part.name.partition("=")[2] for part in (folder.parent, folder))
    window = WindowFolder(folder=folder, attempt=int(attempt), step=int(step))
    try:
        finished(window, rank=chosen.rank, keeps_raw=chosen.keep_raw)
    except TracekitError as error:
        sys.exit(str(error))


__all__ = ["Job", "WindowFolder", "finished", "is_recording", "picked", "windows"]

if __name__ == "__main__":
    main()
