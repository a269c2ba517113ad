"""Why the devices of real traces are idle: shares of the mean step by cause.

Run:
    python -m benchmarks.idle_causes TRACES...     # files or folders; each is one run
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import polars as pl

import tracekit
from tracekit.derive.averages import averages, mean_steps
from tracekit.derive.idle_totals import idle_by_cause

CAUSES = ("launch latency", "launch-overhead", "host-other", "host-sync", "input-pipeline")
CAUSES += ("allocator", "dependency", "not recorded")


def main() -> None:
    """Print one Markdown table, a row for each run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", type=Path, nargs="+")
    print(f"| trace | mean step | idle | {' | '.join(CAUSES)} |")
    print("|---|---|---|" + "---|" * len(CAUSES))
    for path in parser.parse_args().traces:
        with tempfile.TemporaryDirectory(prefix="tracekit-") as temporary:
            print(_row(path, Path(temporary)))


def _row(path: Path, temporary: Path) -> str:
    run = tracekit.convert(path, temporary / "run")
    means, steps = mean_steps(run), averages(run).steps
    total_ns = means.select(pl.col("dur_ns").sum()).item() * len(steps)
    by_cause = idle_by_cause(run).group_by("cause").agg(pl.col("dur_ns").sum())
    shares = {cause: dur_ns / total_ns for cause, dur_ns in by_cause.rows()}
    step_ms = means.select(pl.col("dur_ns").mean()).item() / 1e6
    cells = [f"{100 * shares.get(cause, 0):.1f} %" for cause in CAUSES]
    idle = f"{100 * sum(shares.values()):.1f} %"
    return (
        f"| {path.name.partition('.')[0][:48]} | {step_ms:,.1f} ms | {idle} | {' | '.join(cells)} |"
    )


if __name__ == "__main__":
    main()
