"""Run the whole pipeline on an embedded sample: four ranks, one of them late."""

from __future__ import annotations

from pathlib import Path

import click

from tracekit.cli._options import Options, pass_options
from tracekit.cli._paths import free_for_run
from tracekit.cli._pipeline import analyze_with_progress, no_empty_folder, show, write_all

SAMPLES = ("slow-input", "longer-sequences")


@click.command(epilog="Example: tracekit demo --sample longer-sequences")
@click.option(
    "--sample",
    type=click.Choice(SAMPLES),
    default=SAMPLES[0],
    show_default=True,
    help="What makes one rank late.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for run/, result.json and report.html. Default: ./tracekit-demo.",
)
@pass_options
def command(options: Options, /, sample: str, output: Path | None) -> None:
    """Analyse a small real capture in the package and write its report."""
    from tracekit.sample_traces import demo_traces  # noqa: PLC0415

    folder = output or Path.cwd() / "tracekit-demo"
    with no_empty_folder(folder), demo_traces(sample) as traces:
        result = analyze_with_progress(options, [str(traces)], free_for_run(folder / "run"))
    write_all(result, folder)
    show(options, result, folder)
