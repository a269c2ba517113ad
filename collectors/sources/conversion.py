"""Files of a run → a run folder: one task a rank, resumed where an earlier one was cut off."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.collectors import Collector, Options, RankFile
from tracekit.collectors.sources import redaction
from tracekit.collectors.sources.besides import identities, with_besides
from tracekit.collectors.sources.candidates import IN_THE_FILE
from tracekit.engine import map_ranks
from tracekit.errors import InputError, TracekitError
from tracekit.schema import SCHEMA_VERSION
from tracekit.store import (
    MANIFEST,
    Capture,
    Check,
    Manifest,
    Run,
    SourceIdentity,
    capture_path,
    is_run,
    open_run,
    path_text,
    rank_path,
    read_json,
    remove_run,
    tracekit_version,
    write_json,
)

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tracekit.collectors.sources.grouping import FoundRun
    from tracekit.collectors.sources.inventory import Inventory

log = logging.getLogger(__name__)

MANIFEST_EVERY_S = 2.0
Converted = Callable[[Capture], None]
"""Told about each rank when its tables are written."""


def convert_run(
    found: FoundRun,
    beside: Inventory,
    folder: Path,
    executor: Executor,
    *,
    source: str,
    is_redacted: bool = False,
    on_done: Converted | None = None,
) -> Run:
    """Convert the files of a run into `folder`; ranks that are there and unchanged are kept.

    A rank whose file cannot be read is left out and named in the manifest; the others are not lost.
    The manifest is written from the first rank on, so that a conversion cut off leaves a run.

    Raises:
        InputError: no rank could be converted.
    """
    epoch_ns = found.started_ns or 0
    options = Options(epoch_ns=epoch_ns, is_redacted=is_redacted)
    earlier = open_run_or_none(folder)
    if is_run(folder) and not _fits(earlier, found, options):
        remove_run(folder)
        earlier = None
    folder.mkdir(parents=True, exist_ok=True)
    task = partial(converted, found.collector, folder, options)
    so_far = _SoFar(n_written=len(earlier.ranks) if earlier else 0)

    def manifest() -> Manifest:
        return _manifest(found, beside, so_far, source, options)

    def tell(_file: RankFile, outcome: Capture | TracekitError) -> None:
        so_far.add(outcome)
        if so_far.is_due():
            write_json(folder / MANIFEST, manifest())
        if on_done is not None and isinstance(outcome, Capture):
            on_done(outcome)

    try:
        map_ranks(
            task,
            _to_do(found.files, folder, options, tell),
            executor=executor,
            on_done=tell,
            name=lambda file: f"rank {file.rank}",
        )
    finally:
        if len(so_far.captures) > so_far.n_written:
            write_json(folder / MANIFEST, manifest())
    if not so_far.captures:
        remove_run(folder)
        if not any(folder.iterdir()):
            folder.rmdir()
        raise so_far.failures[0] if len(so_far.failures) == 1 else _all_failed(so_far.failures)
    write_json(folder / MANIFEST, manifest())
    return Run(folder, manifest())


@dataclass(slots=True)
class _SoFar:
    """What has been converted, and how much of it the manifest on disk says."""

    n_written: int
    captures: list[Capture] = field(default_factory=list)
    failures: list[TracekitError] = field(default_factory=list)
    written_s: float = -MANIFEST_EVERY_S

    def add(self, outcome: Capture | TracekitError) -> None:
        """Count one file in."""
        if isinstance(outcome, Capture):
            self.captures.append(outcome)
        else:
            self.failures.append(outcome)

    def is_due(self) -> bool:
        """Whether the manifest is to be written now: it says less, and some time has passed."""
        if len(self.captures) <= self.n_written:
            return False
        if time.monotonic() - self.written_s < MANIFEST_EVERY_S:
            return False
        self.n_written, self.written_s = len(self.captures), time.monotonic()
        return True


def open_run_or_none(folder: Path) -> Run | None:
    """The run there, None where it is of another version or damaged."""
    try:
        return open_run(folder)
    except InputError:
        return None


def _fits(run: Run | None, found: FoundRun, options: Options) -> bool:
    """Whether a folder holds this run, so that its ranks can be kept."""
    return (
        run is not None
        and run.manifest.epoch_ns == options.epoch_ns
        and run.manifest.is_redacted == options.is_redacted
        and set(run.ranks) <= {file.rank for file in found.files}
    )


def converted(
    collector: Collector, folder: Path, options: Options, file: RankFile
) -> Capture | TracekitError:
    """Convert one rank into a run folder. Faults of a file come back as values.

    So does what no one foresaw: one odd file among hundreds must not cost the others.
    """
    try:
        capture_path(folder, file.rank).unlink(missing_ok=True)  # its tables are about to change
        capture = collector.convert(file, folder, options)
        if file.also:
            capture = with_besides(collector, capture, file, folder, options)
        if options.is_redacted:
            capture = redaction.redacted_capture(capture)
        write_json(capture_path(folder, file.rank), capture)
    except TracekitError as error:
        return error
    except OSError as error:
        at = error.filename or file.path
        return InputError(f"{file.path}: {at}: {error.strerror or error}")
    except Exception as error:
        log.debug("where it was raised", exc_info=True)
        return InputError(
            f"{file.path}: cannot be converted: {_described(error)}",
            hint="This is a fault of tracekit: report it with the file, or a part of it.",
        )
    return capture


def _described(error: Exception) -> str:
    """Kind, place and first line of an error."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    line = str(error).partition("\n")[0][:200]
    return f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}: {line}"


def _to_do(
    files: Sequence[RankFile],
    folder: Path,
    options: Options,
    tell: Callable[[RankFile, Capture], None],
) -> list[RankFile]:
    """The files that are to be converted; `tell` hears of the captures that are there already.

    They are looked for here: no worker starts only to find that its rank needs none.
    """
    kept = [(file, _kept(folder, options, file)) for file in files]
    for file, capture in kept:
        if capture is not None:
            tell(file, capture)
    return [file for file, capture in kept if capture is None]


def _kept(folder: Path, options: Options, file: RankFile) -> Capture | None:
    """What is known of a rank that has been converted from this file as it is; else None."""
    path = capture_path(folder, file.rank)
    try:
        stat = file.path.stat()
        capture = read_json(path, Capture)
        beside = identities(file)
    except (InputError, OSError):
        return None
    shown = path_text(file.path)
    identity = SourceIdentity(path=shown, size_bytes=stat.st_size, modified_ns=stat.st_mtime_ns)
    wanted = replace(capture, source=identity, beside=beside)
    wanted = redaction.redacted_capture(wanted) if options.is_redacted else wanted
    is_same = (capture.source, capture.beside) == (wanted.source, wanted.beside)
    is_same = is_same and capture.epoch_ns == options.epoch_ns
    has_tables = all(rank_path(folder, table, file.rank).is_file() for table in capture.n_rows)
    is_kept = is_same and has_tables and capture.rank == file.rank
    by = (capture.collector, *(other for other, _ in file.also))
    code = "+".join(dict.fromkeys(_code(each) for each in by))
    return capture if is_kept and capture.code == code else None


def _code(collector_id: str) -> str:
    from tracekit.collectors import collectors  # noqa: PLC0415 - a worker finds only what it needs

    collector = collectors().get(collector_id)
    return collector.code() if collector else ""


def _manifest(
    found: FoundRun,
    beside: Inventory,
    so_far: _SoFar,
    source: str,
    options: Options,
) -> Manifest:
    other_runs = [run for run in beside.runs if run.name != found.name]
    others = [
        f"run {run.name}: {len(run.files)} of {run.world_size} ranks (pick it with --run)"
        for run in other_runs
    ]
    others += [f"not converted: {failure.message}" for failure in so_far.failures]
    others += beside.left_out
    n_open = len(found.files) - len(so_far.captures) - len(so_far.failures)
    if n_open:
        others.insert(0, f"cut off with {n_open} ranks to go: tracekit convert goes on with them")
    captures = sorted(so_far.captures, key=lambda capture: capture.rank)
    ranks = {capture.rank for capture in captures}
    hide = redaction.alias_path if options.is_redacted else path_text
    if options.is_redacted:
        others = [f"{len(others)} other runs and files, not named"] if others else []
    return Manifest(
        schema_version=SCHEMA_VERSION,
        tracekit_version=tracekit_version(),
        name=redaction.alias("run", found.name) if options.is_redacted else found.name,
        source=hide(source),
        epoch_ns=options.epoch_ns,
        world_size=found.world_size,
        captures=tuple(replace(c, quality=(*c.quality, *_rank_checks(c))) for c in captures),
        missing_ranks=tuple(rank for rank in found.expected_ranks if rank not in ranks),
        environment=_common([capture.environment for capture in captures if capture.environment]),
        other_runs=tuple(
            redaction.alias("run", run.name) if options.is_redacted else path_text(run.name)
            for run in other_runs
        ),
        others=tuple(map(path_text, others)),
        is_redacted=options.is_redacted,
    )


def _common(all_ranks: list[dict[str, str]]) -> dict[str, str]:
    """Variables that have the same value on all ranks of which some are known."""
    return {
        name: value
        for name, value in (all_ranks[0] if all_ranks else {}).items()
        if all(other.get(name) == value for other in all_ranks)
    }


def _rank_checks(capture: Capture) -> tuple[Check, ...]:
    if capture.rank_source == IN_THE_FILE:
        return ()
    detail = f"the trace does not say its rank; it comes from: {capture.rank_source}"
    return (Check(check="rank not in the trace", severity="info", count=1, detail=detail),)


def _all_failed(failures: list[TracekitError]) -> InputError:
    shown = "; ".join(failure.message for failure in failures[:3])
    return InputError(
        f"none of {len(failures)} files could be read: {shown}", hint=failures[0].hint
    )
