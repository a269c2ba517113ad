"""Load folders of traces with HolisticTraceAnalysis, as a program of its own, and print figures.

Its import takes seconds and it warns a lot. Times are µs, not rounded to whole ones.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"

# What it imports reads the variable.
from hta.trace_analysis import TraceAnalysis


def figures(folder):
    """What six analyses say of a folder."""
    files = {int(path.stem.removeprefix("rank")): str(path) for path in folder.glob("rank*.json")}
    ranks = sorted(files)
    analysis = TraceAnalysis(
        trace_files=files, trace_dir=str(folder), include_last_profiler_step=True
    )
    temporal = analysis.get_temporal_breakdown(visualize=False)
    overlap = analysis.get_comm_comp_overlap(visualize=False)
    kinds, kernels = analysis.get_gpu_kernel_breakdown(visualize=False)
    idle, _ = analysis.get_idle_time_breakdown(ranks=ranks, visualize=False)
    launches = analysis.get_cuda_kernel_launch_stats(ranks=ranks, visualize=False)
    return {
        "temporal": temporal.set_index("rank").to_dict("index"),
        "overlap": overlap.set_index("rank")["comp_comm_overlap_pctg"].to_dict(),
        "kinds": kinds.set_index("kernel_type")["sum"].to_dict(),
        "n_kernels": len(kernels),
        "idle": idle.groupby("rank")["idle_time"].sum().to_dict(),
        "n_launches": {rank: len(rows) for rank, rows in launches.items()},
        "steps": analysis.get_profiler_steps(),
    }


json.dump({name: figures(Path(name)) for name in sys.argv[1:]}, sys.stdout, default=float)
