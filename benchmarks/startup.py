"""Start of the command: `tracekit --help` against a program of click with one command.

Run:
    python -m benchmarks.startup
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.inputs import Inputs, main
from benchmarks.measure import TRACEKIT, least, printed
from benchmarks.table import Row, at_most

if TYPE_CHECKING:
    from collections.abc import Iterator

TITLE = "Start"
N_RUNS = 15
MOST_CLICKS = 1.5
_CLICK = """
import click

@click.command()
def command():
    "Do nothing."

command()
"""
_LOADED = """
import sys
from tracekit.cli import main

main(["--help"], standalone_mode=False)
print("\\n" + " ".join({"polars", "plotly", "pyarrow"} & set(sys.modules)))
"""


def rows(inputs: Inputs) -> Iterator[Row]:
    """CPU of the help, and what it loads that it should not."""
    program = inputs.folder / "bare.py"
    program.write_text(_CLICK)
    script = Path(sys.executable).with_name("tracekit")
    ours = least([*([str(script)] if script.exists() else TRACEKIT), "--help"], N_RUNS)
    bare = least([sys.executable, str(program), "--help"], N_RUNS)
    yield Row(
        f"tracekit --help, against bare click: CPU, least of {N_RUNS}, as a multiple",
        f"{ours.cpu_s * 1e3:.0f} ms",
        f"{bare.cpu_s * 1e3:.0f} ms",
        *at_most(ours.cpu_s / bare.cpu_s, MOST_CLICKS),
    )
    loaded = printed([sys.executable, "-c", _LOADED]).splitlines()[-1]
    target = "none: " + ("missed" if loaded else "met")
    yield Row("of Polars, Plotly and pyarrow it loads", loaded or "none", target=target)


if __name__ == "__main__":
    main(__doc__, {TITLE: rows})
