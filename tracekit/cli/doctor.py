"""Say what can be recorded here, what stands in the way, and which variables to set."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tracekit.collectors.preflight import Answer

TAKES = ()


@click.command(epilog="Example: tracekit doctor runs/my-job")
@click.argument("run_folder", metavar="[RUN_DIR]", type=click.Path(path_type=Path), required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
def command(*, run_folder: Path | None, as_json: bool) -> None:
    """Look at torch, devices, other tools, limits, clock and variables, and at RUN_DIR if given.

    Each line is ok, a note, or a problem, with what to do about it. Run it where the job runs: in
    its container, with its Python and its environment. Nothing is changed.

    The exit code is 0 when nothing prevents a recording, and 1 when a problem does.
    """
    from tracekit.collectors.preflight import Machine, State, answers  # noqa: PLC0415

    found = answers(Machine(environment=dict(os.environ), run_folder=run_folder))
    can_record = all(
        each.state is not State.PROBLEM for several in found.values() for each in several
    )
    if as_json:
        said = [
            {"check": check, **asdict(each)} for check, several in found.items() for each in several
        ]
        click.echo(json.dumps({"can_record": can_record, "answers": said}, indent=2))
    else:
        _show(found)
    if not can_record:
        raise SystemExit(1)


def _show(found: Mapping[str, Iterable[Answer]]) -> None:
    from tracekit.collectors.preflight import Group, State  # noqa: PLC0415

    width = max(map(len, State))
    for group in Group:
        click.echo(f"{group.capitalize()}:")
        for each in (each for several in found.values() for each in several):
            if each.group is group:
                click.echo(f"  {each.state:<{width}}  {each.text}")
                if each.fix:
                    click.echo(f"  {'':<{width}}  Fix: {each.fix}")
