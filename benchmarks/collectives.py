"""How matching, clocks, waits and lateness grow with collectives and with ranks; clock accuracy.

Run:
    python -m benchmarks.collectives

Ranks enter collectives of the world by chance up to some microseconds apart. CPU seconds are those
of one process, for each number of calls a rank; the last column is the time for one call of one
rank, as a ratio to the first row. Clocks: offsets to 12 s, drift to 50 ppm, ends late by a
half-normal of 3 µs with 5 % in an exponential tail of 60 µs.
"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.derive.clock_fit import Block, fitted
from tracekit.derive.clocks import clocks
from tracekit.derive.instances import instances
from tracekit.derive.lateness import late_calls
from tracekit.derive.waits import waits
from tracekit.schema import TABLES
from tracekit.store import Capture, Manifest, Run, SourceIdentity, TableWriter, open_run, write_json

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = ((8, 500), (8, 1_000), (8, 4_000), (64, 500), (256, 500))
STAGES: dict[str, Callable[[Run], object]] = {
    "matching": lambda run: instances(run).collect(),
    "clocks": clocks,
    "waits": lambda run: waits(run).collect(),
    "lateness": late_calls,
}
EVERY_NS = 300_000
N_SEEDS = 20


def main() -> None:
    """Print both tables."""
    pl.Config.set_engine_affinity("in-memory")  # as an analysis does
    print(f"| ranks × calls | {' | '.join(f'{name}, CPU s' for name in STAGES)} | a call, ratio |")
    print("|---|" + "---|" * (len(STAGES) + 1))
    first = None
    for n_ranks, n_calls in SIZES:
        taken_s = _taken_s(n_ranks, n_calls)
        each = sum(taken_s) / (n_ranks * n_calls)
        first = first or each
        figures = " | ".join(f"{seconds:.2f}" for seconds in taken_s)
        print(f"| {n_ranks} × {n_calls:,} | {figures} | {each / first:.2f} |")
    print("\n| clocks | events | span | error, median | error, p99 |\n|---|---|---|---|---|")
    for n_clocks, n_events, span_s in ((16, 400, 10), (16, 40, 10), (256, 100, 10)):
        errors_us = np.concatenate(
            [_errors_us(n_clocks, n_events, span_s, seed) for seed in range(N_SEEDS)]
        )
        middle, most = np.median(errors_us), np.quantile(errors_us, 0.99)
        print(f"| {n_clocks} | {n_events} | {span_s} s | {middle:.2f} µs | {most:.2f} µs |")


def _taken_s(n_ranks: int, n_calls: int) -> list[float]:
    with tempfile.TemporaryDirectory(prefix="tracekit-") as folder:
        run = _run(Path(folder), n_ranks, n_calls)
        taken = []
        for stage in STAGES.values():
            started_s = time.process_time()
            stage(run)
            taken.append(time.process_time() - started_s)
    return taken


def _run(folder: Path, n_ranks: int, n_calls: int) -> Run:
    """A run of collectives of all ranks, with one kernel before each."""
    generator = random.Random(1)  # noqa: S311 - a simulation
    begins = np.cumsum([EVERY_NS + generator.randrange(80_000) for _ in range(n_calls)])
    late = np.array(
        [[int(generator.expovariate(1 / 5_000)) for _ in range(n_ranks)] for _ in range(n_calls)]
    )
    ends = begins + 150_000 + late.max(axis=1)
    captures = []
    for rank in range(n_ranks):
        enters = begins + 100_000 + late[:, rank]
        writer = TableWriter(folder, rank)
        kernel = {"dur_ns": enters - begins, "name": "gemm", "kind": "gemm", "stream": 7}
        call = {"dur_ns": ends - enters, "name": "ncclDevKernel_AllReduce", "stream": 20}
        described = {
            "operation": "all_reduce",
            "source": "metadata",
            "group": "0",
            "members": list(range(n_ranks)),
            "group_size": n_ranks,
            "bytes_in": 1024,
        }
        kernels = pl.concat(
            [
                rows_of("kernels", begins, kernel),
                rows_of("kernels", enters, call | {"kind": "communication"}),
            ]
        )
        writer.write("kernels", kernels.sort("start_ns"))
        writer.write("collectives", rows_of("collectives", enters, call | described))
        writer.close()
        captures.append(
            Capture(
                rank=rank,
                rank_source="benchmark",
                source=SourceIdentity(path=f"rank{rank}", size_bytes=0, modified_ns=0),
                collector="kineto",
                code="",
                epoch_ns=0,
                n_rows=writer.n_rows,
            )
        )
    manifest = Manifest(
        tracekit_version="",
        name="benchmark",
        source="benchmark",
        epoch_ns=0,
        world_size=n_ranks,
        captures=tuple(captures),
    )
    write_json(folder / "manifest.json", manifest)
    return open_run(folder)


def rows_of(table: str, starts_ns: np.ndarray, values: dict[str, object]) -> pl.DataFrame:
    """Rows of a table that start at these times; what is not given is null."""
    schema = TABLES[table].schema
    given = {
        name: pl.Series(name, value, dtype=schema[name])
        if isinstance(value, np.ndarray)
        else pl.lit(value, dtype=schema[name])
        for name, value in values.items()
    }
    rest = {name: pl.lit(None, dtype=kind) for name, kind in schema.items()}
    return pl.DataFrame({"start_ns": starts_ns}).select(
        *(
            {**rest, **given, "start_ns": pl.col("start_ns").cast(pl.Int64)}[name].alias(name)
            for name in schema
        )
    )


def _errors_us(n_clocks: int, n_events: int, span_s: float, seed: int) -> np.ndarray:
    """How far clocks that were put together are from the first, over the span."""
    generator = np.random.default_rng(seed)
    offsets = generator.uniform(-12e9, 12e9, n_clocks)
    drifts = generator.uniform(-50e-6, 50e-6, n_clocks)
    offsets[0] = drifts[0] = 0
    at = np.sort(generator.uniform(0, span_s * 1e9, n_events))[:, None]
    shape = (n_events, n_clocks)
    late = np.abs(generator.normal(0, 3e3, shape))
    late += (generator.random(shape) < 0.05) * generator.exponential(60e3, shape)
    ends = (at + late) * (1 + drifts) + offsets
    fit = fitted(n_clocks, [Block(np.arange(n_clocks), ends)])
    asked = np.linspace(0, span_s * 1e9, 20)[:, None]
    corrected = (asked * (1 + drifts) + offsets) * (1 - fit.drift) - fit.offset_ns
    return np.abs(corrected - corrected[:, :1])[:, 1:].ravel() / 1000


if __name__ == "__main__":
    main()
