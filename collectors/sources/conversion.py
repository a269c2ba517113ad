"""Files of a run → a run folder: one task a rank, resumed where an earlier one was cut off."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tracekit.collectors import Collector, Options, RankFile
from tracekit.collectors.sources import redaction
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
    read_json,
    remove_run,
    tracekit_version,
    write_json,
)

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from pathlib import Path

    from tracekit.collectors.sources.inventory import FoundRun, Inventory

log = logging.getLogger(__name__)

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
    """Convert the files of a run into `folder`; ranks that are already there and unchanged are kept.

    A rank whose file cannot be read is left out and named in the manifest; the others are not lost.

    Raises:
        InputError: no rank could be converted.
    """
    epoch_ns = found.started_ns or 0
    options = Options(epoch_ns=epoch_ns, is_redacted=is_redacted)
    if is_run(folder) and not _fits(open_run_or_none(folder), found, options):
        remove_run(folder)
    folder.mkdir(parents=True, exist_ok=True)
    task = partial(_converted, found.collector, folder, options)

    def tell(_file: RankFile, outcome: Capture | TracekitError) -> None:
        if on_done is not None and isinstance(outcome, Capture):
            on_done(outcome)

    outcomes = map_ranks(
        task, found.files, executor=executor, on_done=tell, name=lambda file: f"rank {file.rank}"
    )
    captures = tuple(outcome for outcome in outcomes if isinstance(outcome, Capture))
    failures = [outcome for outcome in outcomes if isinstance(outcome, TracekitError)]
    if not captures:
        raise failures[0] if len(failures) == 1 else _all_failed(failures)
    manifest = _manifest(found, beside, captures, failures, source, options)
    write_json(folder / MANIFEST, manifest)
    return Run(folder, manifest)


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


def _converted(
    collector: Collector, folder: Path, options: Options, file: RankFile
) -> Capture | TracekitError:
    """Convert one rank, unless its tables are there already. Errors of the file come back as values."""
    kept = _kept(folder, options, file)
    if kept is not None:
        return kept
    try:
        capture = collector.convert(file, folder, options)
    except TracekitError as error:
        return error
    if options.is_redacted:
        capture = redaction.redacted_capture(capture)
    write_json(capture_path(folder, file.rank), capture)
    return capture


def _kept(folder: Path, options: Options, file: RankFile) -> Capture | None:
    path = capture_path(folder, file.rank)
    if not path.is_file():
        return None
    try:
        capture = read_json(path, Capture)
    except InputError:
        return None
    stat = file.path.stat()
    shown = redaction.alias_path(str(file.path)) if options.is_redacted else str(file.path)
    identity = SourceIdentity(path=shown, size_bytes=stat.st_size, modified_ns=stat.st_mtime_ns)
    same = capture.source == identity and capture.epoch_ns == options.epoch_ns
    return capture if same and capture.code == _code(capture.collector) else None


def _code(collector_id: str) -> str:
    from tracekit.collectors import collectors  # noqa: PLC0415 - a worker finds only what it needs

    return collectors()[collector_id].code()


def _manifest(
    found: FoundRun,
    beside: Inventory,
    captures: tuple[Capture, ...],
    failures: list[TracekitError],
    source: str,
    options: Options,
) -> Manifest:
    others = [
        f"run {run.name}: {len(run.files)} of {run.world_size} ranks (pick it with --run)"
        for run in beside.runs
        if run.name != found.name
    ]
    others += [f"not converted: {failure.message}" for failure in failures]
    others += beside.left_out
    captures = tuple(sorted(captures, key=lambda capture: capture.rank))
    ranks = {capture.rank for capture in captures}
    hide = redaction.alias_path if options.is_redacted else str
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
        missing_ranks=tuple(rank for rank in range(found.world_size) if rank not in ranks),
        others=tuple(others),
        is_redacted=options.is_redacted,
    )


def _rank_checks(capture: Capture) -> tuple[Check, ...]:
    if capture.rank_source == "distributedInfo":
        return ()
    detail = f"the trace does not say its rank; it comes from: {capture.rank_source}"
    return (Check(check="rank not in the trace", severity="info", count=1, detail=detail),)


def _all_failed(failures: list[TracekitError]) -> InputError:
    shown = "; ".join(failure.message for failure in failures[:3])
    return InputError(
        f"none of {len(failures)} files could be read: {shown}", hint=failures[0].hint
    )
