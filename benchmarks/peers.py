"""One rank from JSON to findings, against HolisticTraceAnalysis: load and the same analyses.

Ours does more in the same time: it also looks for problems and writes the page.

Run:
    python -m benchmarks.peers TRACES --file rank0.json.gz --large 500
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from benchmarks.inputs import Inputs, main
from benchmarks.measure import TRACEKIT, Measured, measured
from benchmarks.table import Row, at_least, is_installed, mb, seconds
from tracekit.store import open_run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TITLE = "One rank: convert, analyse and report, against HTA's load and the same analyses"
SKIPPED = 'skipped: pip install "traceinsight>=0.6.1" "pandas<3"'
LEAST_CPU_RATIO = 10
LEAST_MEMORY_RATIO = 4
_FAILED = "HTA failed: "
_HTA = f"""
import sys
from hta.trace_analysis import TraceAnalysis

analysis = TraceAnalysis(trace_files={{0: sys.argv[1]}}, trace_dir="")
for name in (
    "get_temporal_breakdown", "get_comm_comp_overlap", "get_gpu_kernel_breakdown",
    "get_idle_time_breakdown", "get_cuda_kernel_launch_stats",
):
    try:
        getattr(analysis, name)(visualize=False)
    except Exception as error:
        print("{_FAILED}" + name + ": " + type(error).__name__, file=sys.stderr)
"""


def rows(inputs: Inputs) -> Iterator[Row]:
    """CPU time and memory of each trace, largest last."""
    for path in (*inputs.files, inputs.large()):
        yield from _compared(path, inputs.folder / "peers")


def _compared(path: Path, out: Path) -> Iterator[Row]:
    command = [*TRACEKIT, "analyze", "--quiet", "--engine", "local:1", "--output", str(out)]
    ours = measured([*command, str(path)])
    what = f"{path.name.split('.')[0]}, {mb(open_run(out / 'run').manifest.captures[0].n_bytes)}"
    hta, remark = _hta(path)
    if hta is None:
        yield Row(f"{what}: CPU", seconds(ours.cpu_s), remark)
        yield Row(f"{what}: memory", mb(ours.peak_bytes), remark)
        return
    cpu = at_least(hta.cpu_s / ours.cpu_s, LEAST_CPU_RATIO)
    memory = at_least(hta.peak_bytes / ours.peak_bytes, LEAST_MEMORY_RATIO)
    yield Row(f"{what}: CPU", seconds(ours.cpu_s), f"{seconds(hta.cpu_s)}{remark}", *cpu)
    yield Row(f"{what}: memory", mb(ours.peak_bytes), mb(hta.peak_bytes), *memory)


def _hta(path: Path) -> tuple[Measured | None, str]:
    """HTA measured, None where it was not; and a remark on what failed."""
    if not is_installed("hta"):
        return None, SKIPPED
    try:
        it = measured([sys.executable, "-c", _HTA, str(path)])
    except RuntimeError as error:
        return None, f"HTA ends with {str(error).strip().splitlines()[-1][:80]}"
    failed = [line.removeprefix(_FAILED) for line in it.said.splitlines() if _FAILED in line]
    return it, f" (failed: {', '.join(failed)})" if failed else ""


if __name__ == "__main__":
    main(__doc__, {TITLE: rows})
