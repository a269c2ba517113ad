"""Draw the HTML report again from a result.json."""

from __future__ import annotations

from pathlib import Path

import click

from tracekit.reports.render import write_report
from tracekit.results import read_result

TAKES = ()


@click.command(epilog="Example: tracekit report tracekit-traces/")
@click.argument("result", metavar="RESULT", type=click.Path(path_type=Path))
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write. Default: report.html beside the result.",
)
def command(result: Path, output: Path | None) -> None:
    """Draw the HTML report of RESULT: a result.json, or the folder that holds it.

    It needs neither the run nor the traces. Names are as the analysis left them: to draw a report
    without them, analyse with --redact.
    """
    result_json = result / "result.json" if result.is_dir() else result
    path = output or result_json.with_name("report.html")
    write_report(read_result(result_json), path)
    click.echo(f"Report: {path}")
