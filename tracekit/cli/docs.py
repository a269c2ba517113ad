"""Write the generated pages of the documentation, or check them."""

from __future__ import annotations

from pathlib import Path

import click

from tracekit.cli import main
from tracekit.docgen import generated_pages, stale_pages, write_pages
from tracekit.errors import TracekitError, UsageError

TAKES = ()


@click.command(epilog="Example: tracekit docs --check")
@click.option("--check", is_flag=True, help="Change nothing; fail when a page is out of date.")
@click.option(
    "--root",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=Path(),
    help="The checkout that holds README.md and docs/. Default: the current folder.",
)
def command(*, check: bool, root: Path) -> None:
    """Write the pages made from detectors, collectors, tables and commands into docs/."""
    if not ((root / "README.md").is_file() and (root / "docs" / "detectors").is_dir()):
        raise UsageError(
            f"{root.absolute()}: not a checkout of tracekit, whose pages this command writes",
            hint="Run it in a checkout, or name one: --root DIR",
        )
    pages = generated_pages(root, main)
    if not check:
        click.echo(f"{len(write_pages(root, pages))} of {len(pages)} pages changed")
    elif stale := stale_pages(root, pages):
        raise TracekitError(f"out of date: {', '.join(stale)}", hint="Write them: tracekit docs")
    else:
        click.echo(f"{len(pages)} pages are up to date")
