"""Measure the main job: many ranks from JSON to HTML, the same from the run, one large file.

Run:
    python -m benchmarks                      # the embedded sample of four ranks
    python -m benchmarks TRACES --large 500   # a folder of traces; one amplified to 500 MB of JSON
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.amplified import amplified
from benchmarks.measure import TRACEKIT, Measured, measured
from tracekit.api import found_runs
from tracekit.sample_traces import demo_traces


def main() -> None:
    """Print one Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", type=Path, nargs="?", help="Default: the embedded sample.")
    parser.add_argument("--large", type=int, default=100, metavar="MB", help="Default: 100.")
    arguments = parser.parse_args()
    with demo_traces() as sample, tempfile.TemporaryDirectory(prefix="tracekit-") as temporary:
        print(_machine())
        print("| what | wall | CPU | JSON per CPU second | largest process |")
        print("|---|---|---|---|---|")
        _run(arguments.traces or sample, Path(temporary))
        _large(arguments.traces or sample, Path(temporary), arguments.large * 10**6)


def _run(traces: Path, temporary: Path) -> None:
    """All ranks of a folder: from JSON to HTML, and again from the run."""
    from tracekit.store import open_run  # noqa: PLC0415 - after the first measurement

    out = temporary / "out"
    analyze = [*TRACEKIT, "analyze", "--quiet", "--output", str(out)]
    first = measured([*analyze, str(traces)])
    captures = open_run(out / "run").manifest.captures
    n_bytes = sum(capture.n_bytes for capture in captures)
    print(_row(f"analyze, {len(captures)} ranks, {_mb(n_bytes)} of JSON → HTML", first, n_bytes))
    print(
        _row("the same again: run, cache and sources unchanged", measured([*analyze, str(traces)]))
    )
    convert = measured([*TRACEKIT, "convert", "--quiet", str(traces), str(temporary / "run")])
    print(_row(f"convert alone, {len(captures)} ranks", convert, n_bytes))


def _large(traces: Path, temporary: Path, size_bytes: int) -> None:
    """One rank's file, amplified."""
    with found_runs([traces]) as listed:
        source = listed.runs[0].files[0].path
        target = temporary / "large.json"
        n_bytes = amplified(source, target, size_bytes)
    convert = measured([*TRACEKIT, "convert", "--quiet", str(target), str(temporary / "large")])
    print(_row(f"convert, one file of {_mb(n_bytes)} of JSON", convert, n_bytes))


def _row(what: str, it: Measured, n_bytes: int | None = None) -> str:
    rate = f"{n_bytes / 1e6 / it.cpu_s:,.0f} MB" if n_bytes else ""
    return f"| {what} | {it.wall_s:.1f} s | {it.cpu_s:.1f} s | {rate} | {_mb(it.peak_bytes)} |"


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.0f} MB"


def _machine() -> str:
    today = datetime.now(UTC).date()
    machine = f"{platform.machine()}, {os.cpu_count()} cores"
    return f"{today}, {machine}, Python {platform.python_version()}\n"


if __name__ == "__main__":
    main()
