"""Replay a run: what stragglers cost, and what one change of your own would buy."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from tracekit.cli._options import Options, pass_options
from tracekit.cli._paths import ranks, steps
from tracekit.cli._pipeline import Seen, source_of
from tracekit.cli._progress import progress_bar

TAKES = ("--engine",)
MAX_NAMED = 8


@click.command(epilog="Example: tracekit what-if run/ --scale kernel:gemm=0.5 --remove straggler:3")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--scale",
    multiple=True,
    metavar="WORK=FACTOR",
    help="Work takes FACTOR times as long: kernel:gemm=0.5, transfer=2, host@3=0.",
)
@click.option(
    "--remove",
    multiple=True,
    metavar="WHAT",
    help="Without it: straggler:RANK, sync, transfer[:TYPE], input-pipeline, checkpoint, …",
)
@click.option("--json", "as_json", is_flag=True, help="Print slowdowns and answers as JSON alone.")
@click.option("--steps", "steps_text", metavar="A:B", help="Average over steps A to B-1 only.")
@click.option("--ranks", "ranks_text", metavar="LIST", help="Replay these ranks only: 0,3,8-15.")
@click.option("--run", "run_name", metavar="NAME", help="Which run, where PATH holds several.")
@click.option("--rank-from", metavar="REGEX", help="Where the rank stands in the path: one group.")
@pass_options
def command(
    options: Options,
    /,
    paths: tuple[str, ...],
    scale: tuple[str, ...],
    remove: tuple[str, ...],
    as_json: bool,  # noqa: FBT001 - click passes flags so
    steps_text: str | None,
    ranks_text: str | None,
    run_name: str | None,
    rank_from: str | None,
) -> None:
    """Replay PATH (a run folder, traces, or pipeline operations) with something changed.

    Prints how much slower stragglers make the mean step, what the longest path through it is, and
    for each --scale and --remove the step that the change would give. Nothing is written.
    """
    from tracekit import api  # noqa: PLC0415 - loads Polars
    from tracekit.reports.replay_text import as_json_text, summary  # noqa: PLC0415

    with (
        tempfile.TemporaryDirectory(prefix="tracekit-") as temporary,
        progress_bar(options, "Reading", total=1) as advance,
    ):
        seen = Seen(advance)
        found = api.replay(
            source_of(paths),
            folder=Path(temporary) / "run",
            scale=scale,
            remove=remove,
            steps=steps(steps_text),
            ranks=ranks(ranks_text),
            run=run_name,
            rank_from=rank_from,
            engine=options.engine,
            on_found=seen.found,
            on_capture=seen.capture,
        )
    if found.other_runs:
        others = ", ".join(found.other_runs[:MAX_NAMED])
        click.echo(f"Replayed: {found.run}. Beside it lie other runs: --run {others}", err=True)
    if as_json:
        sys.stdout.write(as_json_text(found.slowdowns, found.replay))
        return
    from rich.console import Console  # noqa: PLC0415

    Console().print(summary(found.slowdowns, found.replay, found.ranks))
