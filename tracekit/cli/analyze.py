"""Find what slows a job down, from traces or a run, and write the report."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tracekit.cli._options import Options, pass_options
from tracekit.cli._paths import free_for_run, output_folder, ranks, steps
from tracekit.cli._pipeline import analyze_with_progress, no_empty_folder, show, write_all
from tracekit.findings import Severity, Status
from tracekit.results import Result, encoded_result


@click.command(
    epilog="Example: tracekit analyze traces/ --output slow-job --fail-on critical",
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for run/, result.json and report.html. Default: ./tracekit-NAME.",
)
@click.option("--json", "as_json", is_flag=True, help="Print result.json and nothing else.")
@click.option("--steps", "steps_text", metavar="A:B", help="Average over steps A to B-1 only.")
@click.option("--ranks", "ranks_text", metavar="LIST", help="Analyse these ranks only: 0,3,8-15.")
@click.option("--run", "run_name", metavar="NAME", help="Which run, where PATH holds several.")
@click.option("--rank-from", metavar="REGEX", help="Where the rank stands in the path: one group.")
@click.option(
    "--fail-on",
    type=click.Choice([severity.value for severity in Severity]),
    help="Exit with 1 if a finding is at least this severe.",
)
@pass_options
def command(
    options: Options,
    /,
    paths: tuple[str, ...],
    output: Path | None,
    as_json: bool,  # noqa: FBT001 - click passes flags so
    steps_text: str | None,
    ranks_text: str | None,
    run_name: str | None,
    rank_from: str | None,
    fail_on: str | None,
) -> None:
    """Analyse PATH: a folder, files, a glob or an archive of traces, or a run folder.

    Writes DIR/run/ (the traces as Parquet), DIR/result.json and DIR/report.html, and prints a
    summary. DIR is never inside the source and is used again while the sources are unchanged.
    """
    folder = output_folder(paths, output)
    with no_empty_folder(folder):
        result = analyze_with_progress(
            options,
            paths,
            free_for_run(folder / "run"),
            steps=steps(steps_text),
            ranks=ranks(ranks_text),
            run=run_name,
            rank_from=rank_from,
        )
    write_all(result, folder)
    if as_json:
        sys.stdout.buffer.write(encoded_result(result))
    else:
        show(options, result, folder)
    if fail_on is not None and _is_as_severe(result, Severity(fail_on)):
        raise SystemExit(1)


def _is_as_severe(result: Result, least: Severity) -> bool:
    order = list(Severity)
    return any(
        finding.status is Status.FOUND
        and finding.severity is not None
        and order.index(finding.severity) >= order.index(least)
        for finding in result.findings
    )
