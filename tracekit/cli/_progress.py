"""Progress of long work: one bar on the terminal, nothing when piped or asked to be quiet."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.cli._options import Options


class Advance(Protocol):
    """Move the bar on by an amount, with a short note (a rank, a file) beside it."""

    def __call__(self, amount: float = 1, note: str = "") -> None:
        """Draw the bar `amount` further."""


@contextmanager
def progress_bar(options: Options, title: str, *, total: float) -> Iterator[Advance]:
    """Give a function that moves a bar on, drawn on standard error and wiped when done."""
    if options.quiet or not sys.stderr.isatty():
        yield _still
        return
    from rich import progress  # noqa: PLC0415 - only a terminal needs it
    from rich.console import Console  # noqa: PLC0415

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TimeElapsedColumn(),
        progress.TextColumn("{task.fields[note]}", markup=False),
    )
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total, note="")

        def advance(amount: float = 1, note: str = "") -> None:
            bar.update(task, advance=amount, note=note)

        yield advance


def _still(amount: float = 1, note: str = "") -> None:
    """Take the place of a bar that nobody sees."""
    del amount, note
