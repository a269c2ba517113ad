"""What `import tracekit` offers: open, convert and analyse runs; tables as Polars LazyFrames."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from tracekit.analysis import analysed, limited
from tracekit.collectors.sources.conversion import convert_run
from tracekit.collectors.sources.inventory import Inventory, inventory
from tracekit.collectors.sources.recorded import finished, is_recording, picked, windows
from tracekit.config import Config, check_config
from tracekit.detectors import detectors
from tracekit.engine import open_engine
from tracekit.errors import InputError, UsageError
from tracekit.findings import Finding
from tracekit.results import Result
from tracekit.store import Capture, Run, is_run
from tracekit.store import open_run as _open_run
from tracekit.what_if import WhatIf, asked

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = [
    "Finding",
    "Result",
    "Run",
    "WhatIf",
    "analyze",
    "convert",
    "found_runs",
    "open_run",
    "replay",
]

OnCapture = Callable[[Capture], None]
OnRank = Callable[[int], None]
OnFound = Callable[[int], None]


def convert(
    sources: str | Path | Sequence[str | Path],
    folder: str | Path | None = None,
    /,
    *,
    run: str | None = None,
    rank_from: str | None = None,
    redact: bool = False,
    engine: str = "local",
    on_found: OnFound | None = None,
    on_capture: OnCapture | None = None,
) -> Run:
    """Convert traces into a run folder; ranks that are there already and unchanged are kept.

    Args:
        sources: folder, file, glob or archive of traces, or several; or the folder of `collect`.
        folder: where the run goes; made if need be. The folder of `collect` is converted in place:
            what was killed before it was converted is converted now, and its last window returned.
        run: name of the run, where the sources hold several; else the one with most ranks.
        rank_from: regular expression with one group that finds the rank in a path.
        redact: replace names of hosts, users, paths and modules by aliases.
        engine: `local`, `local:N` processes, or workers elsewhere: `dask:ADDRESS`, `mpi`.
        on_found: told how many ranks there are.
        on_capture: told about each rank when it is written.

    Raises:
        InputError: nothing there is a trace, or none could be read.
        UsageError: an argument does not fit.
    """
    if folder is None:
        return _resumed(sources, run, on_found, on_capture)
    how = _How(
        run=run,
        rank_from=rank_from,
        redact=redact,
        engine=engine,
        on_found=on_found,
        on_capture=on_capture,
    )
    with _converted(sources, Path(folder), how) as (made, _):
        return made


def open_run(folder: str | Path, /) -> Run:
    """Open a run folder, or the last window of a folder of `collect`.

    Raises:
        InputError: no run there, or one that is damaged or of another version.
    """
    recording = _recording(folder)
    return _open_run(folder) if recording is None else finished(picked(recording, None))


def _resumed(
    sources: str | Path | Sequence[str | Path],
    run: str | None,
    on_found: OnFound | None,
    on_capture: OnCapture | None,
) -> Run:
    """Convert what waits in a recording; the run of the window asked for, else of the last."""
    recording = _recording(sources)
    if recording is None:
        raise UsageError(
            f"{sources}: not recorded by tracekit.collect, and no folder for the run is given",
            hint="Give one: convert SOURCE RUN. Only what collect recorded is converted in place.",
        )
    chosen = picked(recording, run)
    found = windows(recording)
    if on_found is not None:
        on_found(sum(len(window.raw) for window in found))
    runs = {window.name: finished(window, on_capture=on_capture) for window in found}
    return runs[chosen.name]


def _recording(sources: str | Path | Sequence[str | Path]) -> Path | None:
    """The folder, where one is given and a hook recorded there."""
    paths = [sources] if isinstance(sources, str | Path) else list(sources)
    folder = Path(paths[0]) if len(paths) == 1 else None
    return folder if folder is not None and is_recording(folder) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _How:
    """How traces are converted, as `convert` describes it."""

    run: str | None
    rank_from: str | None
    redact: bool
    engine: str
    on_found: OnFound | None
    on_capture: OnCapture | None


@contextmanager
def _converted(
    sources: str | Path | Sequence[str | Path], folder: Path, how: _How
) -> Iterator[tuple[Run, Executor]]:
    """The run made of the sources, and the workers that made it, for what comes next."""
    paths = [sources] if isinstance(sources, str | Path) else list(sources)
    with found_runs(paths, how.rank_from) as listed:
        found = listed.pick(how.run)
        if how.on_found is not None:
            how.on_found(len(found.files))
        files = [file.path for file in found.files]
        with open_engine(how.engine, n_tasks=len(files), folder=folder, files=files) as executor:
            made = convert_run(
                found,
                listed,
                folder,
                executor,
                source=", ".join(str(Path(path).absolute()) for path in paths),
                is_redacted=how.redact,
                on_done=how.on_capture,
            )
            yield made, executor


@contextmanager
def found_runs(sources: Sequence[str | Path], rank_from: str | None = None) -> Iterator[Inventory]:
    """The runs behind the sources; archives stay unpacked until the block is left."""
    unpacked = Path(tempfile.mkdtemp(prefix="tracekit-"))
    try:
        yield inventory(sources, unpacked, rank_from)
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)


def analyze(
    source: str | Path | Run | Sequence[str | Path],
    /,
    *,
    folder: str | Path | None = None,
    steps: tuple[int, int] | None = None,
    ranks: Sequence[int] | None = None,
    config: Config | None = None,
    run: str | None = None,
    rank_from: str | None = None,
    redact: bool = False,
    engine: str = "local",
    on_found: OnFound | None = None,
    on_capture: OnCapture | None = None,
    on_rank: OnRank | None = None,
) -> Result:
    """Analyse a run, a run folder, or traces (converted first, into `folder`).

    Args:
        source: a `Run`, a run folder, or what `convert` takes.
        folder: run folder for converted traces; without one a temporary folder is used.
        steps: average over steps [a, b), in the trace's own numbers.
        ranks: analyse these ranks only.
        config: limits of detectors.
        run: see `convert`; likewise `rank_from`, `redact`, `engine`.
        rank_from: see `convert`.
        redact: see `convert`.
        engine: see `convert`.
        on_found: told how many ranks there are.
        on_capture: told about each converted rank.
        on_rank: told about each analysed rank.

    Raises:
        InputError: nothing there can be analysed.
        UsageError: an argument does not fit.
    """
    limits = config or Config()
    check_config(limits, {each.id: each.limits for each in detectors().values()})
    how = _How(
        run=run,
        rank_from=rank_from,
        redact=redact,
        engine=engine,
        on_found=on_found,
        on_capture=on_capture,
    )
    with _limited_run(source, folder, how, steps=steps, ranks=ranks) as (chosen, executor):
        return analysed(chosen, executor, limits, on_rank)


def replay(
    source: str | Path | Run | Sequence[str | Path],
    /,
    *,
    scale: Sequence[str] = (),
    remove: Sequence[str] = (),
    folder: str | Path | None = None,
    steps: tuple[int, int] | None = None,
    ranks: Sequence[int] | None = None,
    run: str | None = None,
    rank_from: str | None = None,
    engine: str = "local",
    on_found: OnFound | None = None,
    on_capture: OnCapture | None = None,
) -> WhatIf:
    """Replay a run, as recorded and with something changed: what stragglers cost, and your changes.

    Args:
        source: a `Run`, a run folder, or what `convert` takes.
        scale: `WORK=FACTOR` each: that work takes FACTOR times as long ("kernel:gemm=0.5").
        remove: what is gone: "straggler:3", "sync", "transfer:all_reduce", "input-pipeline", …
        folder: run folder for converted traces; without one a temporary folder is used.
        steps: average over steps [a, b), in the trace's own numbers.
        ranks: replay these ranks only.
        run: see `convert`; likewise `rank_from`, `engine`, `on_found` and `on_capture`.
        rank_from: see `convert`.
        engine: see `convert`.
        on_found: told how many ranks there are.
        on_capture: told about each converted rank.

    Raises:
        InputError: nothing there can be replayed.
        UsageError: an argument does not fit.
    """
    how = _How(
        run=run,
        rank_from=rank_from,
        redact=False,
        engine=engine,
        on_found=on_found,
        on_capture=on_capture,
    )
    with _limited_run(source, folder, how, steps=steps, ranks=ranks) as (chosen, _):
        found = asked(chosen, scale, remove)
    if found is None:
        given = source.folder if isinstance(source, Run) else source
        raise InputError(
            f"{given}: nothing in it can be replayed: no step with device events, and no pipeline "
            "operations",
            hint="A job on CPUs has no device to replay. On GPUs, record kernels and the calls "
            "that launch them: activities CPU and CUDA.",
        )
    return found


@contextmanager
def _limited_run(
    source: str | Path | Run | Sequence[str | Path],
    folder: str | Path | None,
    how: _How,
    *,
    steps: tuple[int, int] | None,
    ranks: Sequence[int] | None,
) -> Iterator[tuple[Run, Executor]]:
    """The run of the source, limited to steps and ranks; and workers."""
    if ranks is not None and not ranks:
        raise UsageError("ranks: none are given", hint="Leave it out to analyse all.")
    source = _finished(source, how.run, how.on_capture)
    with _run_of(source, folder, how) as (opened, executor):
        chosen = limited(opened, _ordered(steps), None if ranks is None else tuple(ranks))
        with _damage_named(opened), _in_memory():
            yield chosen, executor


def _finished(
    source: str | Path | Run | Sequence[str | Path], run: str | None, on_capture: OnCapture | None
) -> str | Path | Run | Sequence[str | Path]:
    """The run of a recording, converted to its end; anything else as it is."""
    recording = None if isinstance(source, Run) else _recording(source)
    if recording is None:
        return source
    return finished(picked(recording, run), on_capture=on_capture)


@contextmanager
def _in_memory() -> Iterator[None]:
    """Put the tables of all ranks together in memory, which they fit into.

    The streaming engine takes twenty times as long to keep a thousand inputs in order.
    """
    with pl.Config() as config:
        config.set_engine_affinity("in-memory")
        yield


@contextmanager
def _damage_named(run: Run) -> Iterator[None]:
    """Say of which run a Parquet file is damaged inside, where only reading its rows shows it."""
    try:
        yield
    except pl.exceptions.PolarsError as error:
        text = str(error)
        if "parquet" not in text.lower() and "ARROW:schema" not in text:
            raise
        raise InputError(
            f"{run.folder}: a table is damaged: {text.partition(chr(10))[0]}",
            hint=f"Remove {run.folder / 'derived'}, or convert the traces again.",
        ) from error


@contextmanager
def _run_of(
    source: str | Path | Run | Sequence[str | Path],
    folder: str | Path | None,
    how: _How,
) -> Iterator[tuple[Run, Executor]]:
    """The run itself, the run folder opened, or the traces converted; and workers."""
    if isinstance(source, Run) or (isinstance(source, str | Path) and is_run(Path(source))):
        opened = source if isinstance(source, Run) else _open_run(source)
        if how.redact and not opened.manifest.is_redacted:
            raise UsageError(
                f"{opened.folder}: a run that holds names; it cannot be redacted any more",
                hint="Analyse the traces themselves with --redact. Of a recorded job they are kept "
                "with collect(..., keep_raw=True), in raw/ of each window.",
            )
        with open_engine(how.engine, n_tasks=len(opened.ranks), folder=opened.folder) as executor:
            yield opened, executor
    elif folder is not None:
        with _converted(source, Path(folder), how) as made:
            yield made
    else:
        with (
            tempfile.TemporaryDirectory(prefix="tracekit-") as temporary,
            _converted(source, Path(temporary) / "run", how) as made,
        ):
            yield made


def _ordered(steps: tuple[int, int] | None) -> tuple[int, int] | None:
    if steps is not None and steps[0] >= steps[1]:
        raise UsageError(
            f"steps {steps[0]}:{steps[1]}: no step lies in it", hint="A:B leaves B out."
        )
    return steps
