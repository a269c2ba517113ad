"""Convert traces into a run: a folder of Parquet tables, one file per table and rank."""

from __future__ import annotations

from pathlib import Path

import click

from tracekit.cli._options import Options, pass_options
from tracekit.cli._pipeline import Seen
from tracekit.cli._progress import progress_bar

TAKES = ("--engine", "--redact")


@click.command(epilog="Example: tracekit convert traces/ run/")
@click.argument("source", metavar="SOURCE")
@click.argument(
    "run", metavar="[RUN]", required=False, type=click.Path(path_type=Path, file_okay=False)
)
@click.option("--run", "run_name", metavar="NAME", help="Which run, where SOURCE holds several.")
@click.option("--rank-from", metavar="REGEX", help="Where the rank stands in the path: one group.")
@pass_options
def command(
    options: Options, /, source: str, run: Path | None, run_name: str | None, rank_from: str | None
) -> None:
    """Convert SOURCE (folder, file, glob or archive) into the folder RUN.

    Ranks that are there and unchanged are kept: a conversion that was cut off goes on. The kinds of
    source are listed in docs/collectors.md. A SOURCE that tracekit.collect recorded is converted in
    place, without RUN: what a killed job left is not lost.
    """
    from tracekit import api  # noqa: PLC0415 - loads Polars
    from tracekit.cli._paths import free_for_run, output_folder  # noqa: PLC0415

    if run is not None:
        output_folder([source], run)  # refuses a run inside its source
        free_for_run(run)
    with progress_bar(options, "Converting", total=0.5) as advance:
        seen = Seen(advance)
        made = api.convert(
            source,
            run,
            run=run_name,
            rank_from=rank_from,
            redact=options.redact,
            engine=options.engine,
            on_found=seen.found,
            on_capture=seen.capture,
        )
    captures = made.manifest.captures
    n_events = sum(capture.n_events for capture in captures)
    n_bytes = sum(capture.n_bytes for capture in captures)
    click.echo(
        f"Run: {made.folder} ({len(captures)} of {made.manifest.world_size} ranks, "
        f"{n_events:,} events, {n_bytes / 1e6:,.1f} MB of JSON)"
    )
    for other in made.manifest.others[:10]:
        click.echo(f"Left out: {other}", err=True)
    if len(made.manifest.others) > 10:
        click.echo(f"Left out: {len(made.manifest.others) - 10} more, see manifest.json", err=True)
