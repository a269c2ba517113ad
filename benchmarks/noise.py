"""How much durations vary from one step to the next: what the simulator's noise is taken from.

Run:
    python -m benchmarks.noise TRACES...     # each a folder with a trace per rank, of marked steps

A kernel is compared with itself: the n-th launch of a name and grid on a stream, step by step, over
its mean. Calls are launch calls, gaps those between kernels that were launched long before. The
spread of ln(duration) over all kernels of a step says how unlike each other they are.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

import tracekit
from tracekit.derive.activity import COMPUTE, activity
from tracekit.derive.kernel_kinds import COMMUNICATION
from tracekit.derive.steps import windows

if TYPE_CHECKING:
    from tracekit.store import Run

QUEUED_NS = 5_000
"""A kernel launched this long before the one before it ended was waiting in its stream."""
LENGTHS = (("kernels under 10 µs", 0, 10_000), ("10 to 100 µs", 10_000, 100_000))
LENGTHS += (("100 µs and more", 100_000, 10**12),)
QUANTILES = (0.01, 0.1, 0.5, 0.9, 0.99, 0.999)


def main() -> None:
    """Print one Markdown table for each set of traces."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", type=Path, nargs="+")
    for path in parser.parse_args().traces:
        with tempfile.TemporaryDirectory(prefix="tracekit-") as temporary:
            run = tracekit.convert(path, Path(temporary) / "run")
            print(f"\n{path.name}, {len(run.ranks)} ranks\n")
            print(f"| what | n |{''.join(f' p{100 * share:g} |' for share in QUANTILES)}")
            print("|---|---|" + "---|" * len(QUANTILES))
            for what, values in _measured(run):
                cells = (_text(values.quantile(share)) for share in QUANTILES)
                print(f"| {what} | {values.len():,} | {' | '.join(cells)} |")


def _measured(run: Run) -> list[tuple[str, pl.Series]]:
    ratios = pl.concat([_ratios(run, rank) for rank in run.ranks])
    found = [
        (f"ln(duration / mean), {name}", ratios.filter(pl.col("mean").is_between(low, high))["ln"])
        for name, low, high in LENGTHS
    ]
    calls = pl.concat(
        [run.scan("launches", rank).filter(role="launch").select("dur_ns") for rank in run.ranks]
    ).collect()
    gaps = pl.concat([_gaps(run, rank) for rank in run.ranks])
    durations = pl.concat(
        [run.scan("kernels", rank).filter(pl.col("kind") != COMMUNICATION) for rank in run.ranks]
    )
    us = durations.select(pl.col("dur_ns") / 1e3).collect().to_series()
    spread = us.filter(us > 0).log().std()
    return [
        *found,
        (f"compute kernel, µs (spread of ln {spread:.2f})", us),
        ("launch call, µs", calls["dur_ns"] / 1e3),
        ("gap between queued kernels, µs", gaps / 1e3),
    ]


def _ratios(run: Run, rank: int) -> pl.DataFrame:
    """`mean` (ns) and `ln` of a kernel's duration over its mean, a row for each step."""
    steps = windows(run, rank).select("device", "step", opens_ns="start_ns", closes_ns="end_ns")
    same = ["device", "stream", "name", "work"]
    dur = pl.col("end_ns") - pl.col("start_ns")
    return (
        activity(run, rank)
        .filter((pl.col("class") == COMPUTE) & (dur > 0))
        .sort("start_ns")
        .join_asof(
            steps.sort("opens_ns"),
            left_on="start_ns",
            right_on="opens_ns",
            by="device",
            strategy="backward",
            check_sortedness=False,
        )
        .filter(pl.col("start_ns") < pl.col("closes_ns"))
        .with_columns(place=pl.int_range(pl.len()).over([*same, "step"]), dur_ns=dur)
        .with_columns(mean=pl.col("dur_ns").mean().over([*same, "place"]))
        .filter(pl.len().over([*same, "place"]) > 1)
        .select("mean", ln=(pl.col("dur_ns") / pl.col("mean")).log())
        .collect()
    )


def _gaps(run: Run, rank: int) -> pl.Series:
    before_ns = pl.col("end_ns").shift(1).over("device", "stream")
    return (
        activity(run, rank)
        .sort("device", "stream", "start_ns")
        .filter(pl.col("launch_end_ns") < before_ns - QUEUED_NS)
        .select(pl.col("start_ns") - before_ns)
        .collect()
        .to_series()
        .rename("gap")
    )


def _text(value: float | None) -> str:
    return "–" if value is None or not math.isfinite(value) else f"{value:.3g}"


if __name__ == "__main__":
    main()
