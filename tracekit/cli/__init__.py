"""The command `tracekit`. Every module here without a leading underscore is one of its commands."""

from __future__ import annotations

import os
from pathlib import Path

import click

from tracekit.cli._group import LazyGroup
from tracekit.cli._options import Options, common_options, pass_options, set_up_logging
from tracekit.cli._progress import Advance, progress_bar
from tracekit.engine import ALLOCATORS

for variable, value in ALLOCATORS.items():  # the processes it starts inherit them
    os.environ.setdefault(variable, value)

__all__ = ["Advance", "Options", "main", "pass_options", "progress_bar"]


@click.group(
    cls=LazyGroup,
    folder=Path(__file__).parent,
    package=__name__,
    params=common_options(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: tracekit analyze traces/",
)
@click.pass_context
def main(context: click.Context) -> None:
    """Find out where the GPU-hours of a multi-GPU job go, whose fault it is, and what a fix buys.

    The options below work before and after each command that takes them.
    """
    set_up_logging(context.ensure_object(Options))
