"""Say what a path holds: runs, ranks, tables, which analyses can run and what is missing."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.cli._options import Options, pass_options

if TYPE_CHECKING:
    from tracekit.store import Run

TAKES = ("--engine",)


@click.command(epilog="Example: tracekit info traces/")
@click.argument("path", metavar="PATH")
@click.option("--rank-from", metavar="REGEX", help="Where the rank stands in the path: one group.")
@pass_options
def command(options: Options, /, path: str, rank_from: str | None) -> None:
    """Show what PATH holds, without analysing it.

    Of traces, the file of one rank is read as a sample of what was recorded.
    """
    from tracekit.collectors.sources.recorded import is_recording  # noqa: PLC0415 - loads Polars
    from tracekit.store import is_run, open_run  # noqa: PLC0415

    if is_recording(Path(path)):
        _show_recording(Path(path))
        return
    for folder in (Path(path), Path(path) / "run"):
        if is_run(folder):
            _show_run(open_run(folder))
            return
    _show_traces(options, path, rank_from)


def _show_recording(path: Path) -> None:
    from tracekit.collectors.sources.recorded import finished, picked, windows  # noqa: PLC0415

    chosen = picked(path, None)
    for window in windows(path):
        remark = " (analysed by default)" if window == chosen else ""
        n_waiting = len(window.waiting)
        waits = f", {n_waiting} ranks not converted yet" if n_waiting else ""
        click.echo(f"Window {window.name}: from step {window.step:,}{waits}{remark}")
    _show_run(finished(chosen))


def _show_traces(options: Options, path: str, rank_from: str | None) -> None:
    from dataclasses import replace  # noqa: PLC0415

    from tracekit.api import found_runs  # noqa: PLC0415
    from tracekit.collectors.sources.conversion import convert_run  # noqa: PLC0415
    from tracekit.engine import open_engine  # noqa: PLC0415

    with found_runs([path], rank_from) as listed, tempfile.TemporaryDirectory() as temporary:
        for index, run in enumerate(listed.runs):
            ranks = [file.rank for file in run.files]
            chosen = " (analysed by default)" if index == 0 and len(listed.runs) > 1 else ""
            click.echo(f"Run {run.name}: {len(ranks)} of {run.world_size} ranks{chosen}")
            click.echo(f"  ranks {_few(ranks)}; rank from: {run.files[0].rank_source}")
            if run.missing_ranks:
                click.echo(f"  missing ranks: {_few(list(run.missing_ranks))}")
        for note in listed.left_out[:20]:
            click.echo(f"Left out: {note}")
        if len(listed.left_out) > 20:
            click.echo(f"Left out: {len(listed.left_out) - 20} more files")
        first = listed.runs[0]
        sample = replace(first, files=first.files[:1])
        click.echo(f"\nAs recorded on rank {sample.files[0].rank} of {first.name}:")
        with open_engine(options.engine, n_tasks=1) as executor:
            made = convert_run(sample, listed, Path(temporary) / "run", executor, source=path)
        _show_run(made, n_ranks=len(first.files))


def _show_run(run: Run, n_ranks: int | None = None) -> None:
    from tracekit.detectors import detectors, why_not  # noqa: PLC0415
    from tracekit.schema import TABLES  # noqa: PLC0415

    if n_ranks is None:
        manifest = run.manifest
        click.echo(f"Run {manifest.name}: {len(run.ranks)} of {manifest.world_size} ranks")
        if manifest.missing_ranks:
            click.echo(f"  missing ranks: {_few(list(manifest.missing_ranks))}")
    width = max(map(len, TABLES))
    for name, table in TABLES.items():
        n_rows = run.n_rows(name)
        shown = f"{n_rows:>12,}  {table.title}" if n_rows else f"{'-':>12}"
        click.echo(f"  {name:<{width}} {shown}")
    checks = [check for capture in run.manifest.captures for check in capture.quality]
    for check in checks[:12]:
        click.echo(f"  {check.severity}: {check.check} ({check.count:,}): {check.detail}")
    click.echo("\nAnalyses:")
    width = max(map(len, detectors()))
    for detector in detectors().values():
        why = why_not(detector, run, len(run.ranks) if n_ranks is None else n_ranks)
        state = f"cannot run: {why}" if why else "can run"
        click.echo(f"  {detector.id:<{width}} {state}")


def _few(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:16]))
    return shown if len(numbers) <= 16 else f"{shown}, … ({len(numbers)} in all)"
