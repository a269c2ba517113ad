"""How the analysis of communication grows with ranks and collectives, and the memory it takes.

Run:
    python -m benchmarks.communication [RANKSxCALLS ...]

Ranks lie in nodes of eight, tensor parallel inside and data parallel across; each has one kernel
before every collective, three of four in its node, and twenty steps. A process of its own analyses
the run, from the tables of each rank to the report, with all detectors. The last column is the time
for one call of one rank, as a ratio to the first row.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.collectives import rows_of
from benchmarks.measure import TRACEKIT, measured
from tracekit.store import Capture, Manifest, SourceIdentity, TableWriter, write_json

SIZES = ("128x500", "128x2000", "1024x500", "1024x2000")
N_LOCAL, N_STEPS = 8, 20
EVERY_NS, COMPUTE_NS = 300_000, 100_000
SIZES_BYTES = (1 << 20, 4 << 20, 16 << 20, 64 << 20)
NS_PER_BYTE, LATENCY_NS = 0.002, 20_000


def main(sizes: list[str]) -> None:
    """Print a row a size."""
    print("| ranks × calls | CPU s | wall s | peak memory | a call, ratio |")
    print("|---|---|---|---|---|")
    first = None
    for size in sizes or SIZES:
        n_ranks, n_calls = map(int, size.split("x"))
        with tempfile.TemporaryDirectory(prefix="tracekit-") as folder:
            run = Path(folder) / "run"
            written(run, n_ranks, n_calls)
            output = str(Path(folder) / "out")
            command = [*TRACEKIT, "analyze", str(run), "--engine", "local:1", "--output", output]
            took = measured(command)
        each = took.cpu_s / (n_ranks * n_calls)
        first = first or each
        peak = f"{took.peak_bytes / 1e9:.2f} GB"
        print(
            f"| {n_ranks:,} × {n_calls:,} | {took.cpu_s:.1f} | {took.wall_s:.1f} | {peak} "
            f"| {each / first:.2f} |",
            flush=True,
        )


def written(folder: Path, n_ranks: int, n_calls: int) -> None:
    """Write a run: 100 µs of compute before each collective, which some enter microseconds late."""
    generator = np.random.default_rng(1)
    begins = np.arange(n_calls, dtype=np.int64) * EVERY_NS + 1_000_000
    is_data = np.arange(n_calls) % 4 == 3
    size_bytes = np.array(SIZES_BYTES)[generator.integers(0, len(SIZES_BYTES), n_calls)]
    late = generator.exponential(5_000, (n_calls, n_ranks)).astype(np.int64)
    members = {rank: _groups(rank, n_ranks) for rank in range(n_ranks)}
    took_ns = (LATENCY_NS + NS_PER_BYTE * size_bytes).astype(np.int64)
    captures = []
    for rank, (tensor, data) in members.items():
        last = np.where(is_data, late[:, data].max(axis=1), late[:, tensor].max(axis=1))
        enters = begins + COMPUTE_NS + late[:, rank]
        ends = begins + COMPUTE_NS + last + took_ns
        writer = TableWriter(folder, rank)
        _write(writer, begins, enters, ends, is_data, size_bytes, (tensor, data))
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
                host=f"node-{rank // N_LOCAL}",
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


def _groups(rank: int, n_ranks: int) -> tuple[list[int], list[int]]:
    first = rank // N_LOCAL * N_LOCAL
    return list(range(first, first + N_LOCAL)), list(range(rank % N_LOCAL, n_ranks, N_LOCAL))


def _write(
    writer: TableWriter,
    begins: np.ndarray,
    enters: np.ndarray,
    ends: np.ndarray,
    is_data: np.ndarray,
    size_bytes: np.ndarray,
    groups: tuple[list[int], list[int]],
) -> None:
    import polars as pl  # noqa: PLC0415 - the parent measures a process and needs none of it

    n_calls = len(begins)
    correlation = np.arange(n_calls, dtype=np.int64)
    gemm = {"dur_ns": enters - begins, "name": "gemm", "kind": "gemm", "stream": 7}
    call = {"dur_ns": ends - enters, "name": "ncclDevKernel_AllReduce", "stream": 20}
    called = call | {"kind": "communication", "correlation": correlation + n_calls}
    kernels = [
        rows_of("kernels", begins, gemm | {"correlation": correlation}),
        rows_of("kernels", enters, called),
    ]
    writer.write("kernels", pl.concat(kernels).sort("start_ns"))
    launched = {"dur_ns": 5_000, "name": "cudaLaunchKernel", "role": "launch", "thread": 1}
    launches = [
        rows_of("launches", begins - 50_000, launched | {"correlation": correlation}),
        rows_of("launches", begins - 40_000, launched | {"correlation": correlation + n_calls}),
    ]
    writer.write("launches", pl.concat(launches).sort("start_ns"))
    parts = []
    for name, members, chosen in zip("td", groups, (~is_data, is_data), strict=True):
        described = {
            "dur_ns": (ends - enters)[chosen],
            "operation": "all_reduce",
            "source": "metadata",
            "stream": 20,
            "name": call["name"],
            "group": f"{name}{members[0]}",
            "group_description": "TENSOR_PARALLEL" if name == "t" else "DATA_PARALLEL",
            "members": members,
            "group_size": len(members),
            "bytes_in": size_bytes[chosen],
            "sequence": np.arange(int(chosen.sum()), dtype=np.int64),
            "correlation": (correlation + n_calls)[chosen],
        }
        parts.append(rows_of("collectives", enters[chosen], described))
    writer.write("collectives", pl.concat(parts).sort("start_ns"))
    per_step = n_calls // N_STEPS
    starts = begins[::per_step] - 60_000
    steps = {"dur_ns": per_step * EVERY_NS, "source": "ProfilerStep"}
    number = np.arange(len(starts), dtype=np.int64)
    writer.write("steps", rows_of("steps", starts, steps | {"step": number}))


if __name__ == "__main__":
    main(sys.argv[1:])
