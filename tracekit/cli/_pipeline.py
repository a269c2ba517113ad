"""What analyze and demo share: convert and analyse with a progress bar, write, show."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.cli._progress import Advance, progress_bar
from tracekit.results import Result, write_result

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tracekit.cli._options import Options
    from tracekit.store import Capture


def analyze_with_progress(
    options: Options,
    paths: Sequence[str],
    run_folder: Path,
    *,
    steps: tuple[int, int] | None = None,
    ranks: tuple[int, ...] | None = None,
    run: str | None = None,
    rank_from: str | None = None,
) -> Result:
    """The result of the sources, converted into `run_folder` unless they are a run already."""
    from tracekit import api  # noqa: PLC0415 - loads Polars

    source = source_of(paths)
    with progress_bar(options, "Reading", total=1) as advance:
        seen = Seen(advance)
        return api.analyze(
            source,
            folder=run_folder,
            steps=steps,
            ranks=ranks,
            config=options.config(),
            run=run,
            rank_from=rank_from,
            redact=options.redact,
            engine=options.engine,
            on_found=seen.found,
            on_capture=seen.capture,
            on_rank=seen.rank,
        )


def source_of(paths: Sequence[str]) -> Path | list[str]:
    """The run, where one path is a run or an output folder that holds it; else the paths."""
    from tracekit.store import is_run  # noqa: PLC0415 - loads Polars

    only = Path(paths[0])
    runs = [each for each in (only, only / "run") if len(paths) == 1 and is_run(each)]
    return runs[0] if runs else list(paths)


class Seen:
    """Turns what conversion and analysis report into a bar over ranks, with bytes and events."""

    def __init__(self, advance: Advance) -> None:
        """Start before anything is known."""
        self._advance = advance
        self._n_ranks = 1
        self._n_converted = self._n_bytes = self._n_events = 0

    def found(self, n_ranks: int) -> None:
        """So many ranks will be converted, then analysed."""
        self._n_ranks = max(n_ranks, 1)

    def capture(self, capture: Capture) -> None:
        """One rank was converted."""
        self._n_converted += 1
        self._n_bytes += capture.n_bytes
        self._n_events += capture.n_events
        self._step(
            f"rank {capture.rank}: {_size(capture.n_bytes, capture.n_events)}; "
            f"{self._n_converted} of {self._n_ranks} ranks: {_size(self._n_bytes, self._n_events)}"
        )

    def rank(self, rank: int) -> None:
        """One rank was analysed."""
        self._step(f"rank {rank}: analysed")

    def _step(self, note: str) -> None:
        self._advance(0.5 / self._n_ranks, note)


def _size(n_bytes: int, n_events: int) -> str:
    return f"{n_bytes / 1e6:,.1f} MB, {n_events:,} events"


@contextmanager
def no_empty_folder(folder: Path) -> Iterator[None]:
    """Take an output folder away again if the work in it fails before anything is written."""
    is_new = not folder.exists()
    try:
        yield
    except BaseException:
        if is_new:
            for empty in (folder / "run", folder):
                with suppress(OSError):  # not there, or not empty: what is written stays
                    empty.rmdir()
        raise


def write_all(result: Result, folder: Path) -> None:
    """Write result.json and report.html into the output folder."""
    from tracekit.reports.render import write_report  # noqa: PLC0415 - loads Plotly

    folder.mkdir(parents=True, exist_ok=True)
    write_result(result, folder / "result.json")
    write_report(result, folder / "report.html")


def show(options: Options, result: Result, folder: Path) -> None:
    """Print the one-screen summary and where the report is."""
    if not options.quiet:
        from rich.console import Console  # noqa: PLC0415

        from tracekit.reports.terminal import summary  # noqa: PLC0415

        console = Console()
        console.print(summary(result, width=console.width))
    click.echo(f"Report: {_shown(folder / 'report.html')}")


def _shown(path: Path) -> Path:
    """Relative to here where it lies below, else absolute."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
