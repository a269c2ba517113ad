"""All ranks of a folder from JSON to HTML: the command, its stages, and its slowest functions.

Run:
    python -m benchmarks.stages TRACES
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from benchmarks.inputs import Inputs, main
from benchmarks.measure import TRACEKIT, measured, printed
from benchmarks.table import Row, mb, seconds
from tracekit.store import open_run

if TYPE_CHECKING:
    from collections.abc import Iterator

TITLE = "All ranks of a run, from JSON to HTML"
N_SLOWEST = 3


def rows(inputs: Inputs) -> Iterator[Row]:
    """The command, again, then stage by stage in one process, with a profile of it."""
    out = inputs.folder / "all"
    command = [*TRACEKIT, "analyze", "--quiet", "--output", str(out), str(inputs.traces)]
    first = measured(command)
    captures = open_run(out / "run").manifest.captures
    n_bytes = sum(capture.n_bytes for capture in captures)
    yield Row(
        f"analyze, {len(captures)} ranks, {mb(n_bytes)} of JSON: CPU",
        f"{seconds(first.cpu_s)} ({seconds(first.wall_s)} of wall time)",
    )
    yield Row("its largest process", mb(first.peak_bytes))
    again = measured(command)
    yield Row(
        "again, run and derived tables unchanged: CPU",
        f"{seconds(again.cpu_s)} ({seconds(again.wall_s)} of wall time)",
    )
    arguments = [str(inputs.traces), str(inputs.folder / "stages")]
    staged = json.loads(printed([sys.executable, "-m", "benchmarks.stages_profile", *arguments]))
    whole_s = sum(staged["stages"].values())
    for stage, cpu_s in staged["stages"].items():
        yield Row(f"{stage}, in one process: CPU", f"{seconds(cpu_s)}, {cpu_s / whole_s:.0%}")
    for name, cpu_s in staged["functions"][:N_SLOWEST]:
        yield Row(f"slowest: {name}", f"{seconds(cpu_s)}, {cpu_s / whole_s:.0%}")


if __name__ == "__main__":
    main(__doc__, {TITLE: rows})
