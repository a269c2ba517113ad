"""Device work on HTA's critical path, on the small traces where that is known, is on ours.

HTA looks at the step as the host marks it, counts memsets as compute, and rounds each end up: its
sum is up to 1 µs an event larger. Where no event tells what the host waits for its path is almost
all host, and not compared.
"""

from __future__ import annotations

import polars as pl
import pytest

import tracekit
from tracekit.what_if.critical_path import critical_path
from tracekit.what_if.job import job

FOLDER = "traces/facebookresearch+HolisticTraceAnalysis/tests/data/critical_path"
CASES = {"cp_event_sync": "cuda_event_sync", "cp_event_sync_multi": "cuda_event_sync_multi_stream"}


@pytest.mark.parametrize(("frames", "trace"), CASES.items(), ids=CASES)
def test_the_same_kernels_are_on_the_path(frames, trace, traces, tmp_path):
    theirs = pl.read_csv(traces / f"golden/hta/{frames}/critical_path_breakdown.rank0.csv").filter(
        (pl.col("bound_by") == "gpu_compute_bound") & (pl.col("duration") > 0)
    )
    run = tracekit.convert(traces / FOLDER / trace, tmp_path / "run", engine="local:1")
    ours = critical_path(job(run)).filter(pl.col("class") == "compute")
    kernels = theirs.filter(~pl.col("s_name").str.starts_with("Mem"))
    assert ours.height == kernels.height
    sums_us = ours["on_path_ns"].sum() / 1000, theirs["duration"].sum()
    assert sums_us[0] == pytest.approx(sums_us[1], abs=theirs.height)
