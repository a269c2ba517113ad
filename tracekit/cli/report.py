"""Draw the HTML report again from a result.json."""

from __future__ import annotations

from pathlib import Path

import click

from tracekit.findings import read_result
from tracekit.reports.render import write_report


@click.command(epilog="Example: tracekit report tracekit-traces/result.json")
@click.argument("result_json", type=click.Path(path_type=Path))
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write. Default: report.html beside RESULT_JSON.",
)
def command(result_json: Path, output: Path | None) -> None:
    """Draw the HTML report of RESULT_JSON, which needs neither the run nor the traces."""
    path = output or result_json.with_name("report.html")
    write_report(read_result(result_json), path)
    click.echo(f"Report: {path}")
