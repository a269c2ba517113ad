"""HTA's temporal breakdown and steps: what it prints is ours, or ours after what it gets wrong.

A trace whose times are whole µs, without synchronisation rows and without host operators that name
a stream, gives HTA's figures to the digit. For the others the rows concerned are counted, and ours
after the same change give its figures; unchanged they do not.
"""

from __future__ import annotations

import polars as pl
import pytest

from tracekit.derive.activity import COMPUTE
from tracekit.derive.intervals import length_ns
from tracekit.derive.steps import marks

SYNCS = "cuda_sync rows of a stream are counted as kernels"
OPERATORS = "host operators with a stream are counted as kernels"
ROUNDED = "times of device events are rounded to whole µs, up at the start and down at the end"
NO_STREAM = "device events whose arguments name no stream are dropped"

MISTAKES = {
    "cp_event_sync": {SYNCS: 1},
    "cp_event_sync_multi": {SYNCS: 1},
    "cp_simple_add": {SYNCS: 41},
    "execution_trace_bench": {SYNCS: 41},
    "modded_nanogpt_8rank": {OPERATORS: 10256, ROUNDED: 24107},
    "mtia_trace": {ROUNDED: 25814, NO_STREAM: 137},
    "nccl_parser_config": {ROUNDED: 2516},
    "nccl_parser_config_last": {ROUNDED: 3774},
    "triton_example": {OPERATORS: 1, ROUNDED: 1},
}
"""Rows that each mistake concerns, over all ranks; folders that are not named are sound."""
ON_DEVICE = "modded_nanogpt_8rank"
"""Its steps are marked on the device as well, where the last one begins after all its launches."""
NO_DEVICE = ("cupti_profiler", "rank_non_gpu")


def test_every_folder_is_compared(traces, golden_names):
    folders = {path.name for path in (traces / "golden/hta").iterdir() if path.is_dir()}
    assert folders == {*golden_names, *NO_DEVICE}


def test_the_mistakes_are_these(golden):
    assert golden.mistakes() == MISTAKES.get(golden.name, {})


def breakdown_us(events, union_ns):
    """Idle, compute, non-compute and total time by HTA's definition."""
    total = events["end_ns"].max() - events["start_ns"].min()
    idle = total - union_ns(events)
    compute = union_ns(events.filter(pl.col("class") == COMPUTE))
    return tuple(value_ns / 1000 for value_ns in (idle, compute, total - compute - idle, total))


def exact_union_ns(events):
    return length_ns(events.lazy()).collect().item()


def test_the_temporal_breakdown_is_ours_or_explained(hta, golden):
    rows = golden.frame("get_temporal_breakdown").rows()
    assert [rank for rank, *_ in rows] == list(golden.run.ranks)
    for rank, *figures in rows:
        ours = breakdown_us(golden.kept(rank), exact_union_ns)
        if golden.name not in MISTAKES:
            assert tuple(figures[:4]) == ours
        else:
            assert tuple(figures[:4]) != ours
        changed = golden.changed(rank)
        # Two events of one start whose order matters make 1 µs, in one of these ranks.
        chance_us = 1 if hta.n_below_zero(changed) else 0
        idle, compute, non_compute, total = breakdown_us(changed, hta.union_ns)
        assert figures[:4] == [
            pytest.approx(idle, abs=chance_us),
            compute,
            pytest.approx(non_compute, abs=chance_us),
            total,
        ]


def test_the_shares_are_those_of_the_times(golden):
    for _, idle, compute, non_compute, total, *shares in golden.frame(
        "get_temporal_breakdown"
    ).rows():
        parts = (idle, compute, non_compute)
        assert shares == [pytest.approx(100 * part / total, abs=0.006) for part in parts]


def test_the_steps_are_ours_less_the_last(golden):
    numbers = golden.frame("get_profiler_steps")["step"].to_list()
    ours = sorted({step for rank in golden.run.ranks for step in marks(golden.run, rank)["step"]})
    drops_last = len(ours) > 1 and not golden.with_last and golden.name != ON_DEVICE
    assert numbers == (ours[:-1] if drops_last else ours)


@pytest.mark.parametrize(("name", "steps"), [("cupti_profiler", []), ("rank_non_gpu", [1009])])
def test_without_device_events_only_the_steps_are_left_to_compare(golden_of, name, steps):
    golden = golden_of(name)
    assert golden.frame("get_profiler_steps")["step"].to_list() == steps
    assert marks(golden.run, 0)["step"].to_list() == steps
    assert golden.kept(0).filter(pl.col("device") >= 0).is_empty()
    for method in ("get_gpu_kernel_breakdown_types_all", "get_gpu_kernel_breakdown_kernels_all"):
        assert golden.frame(method).is_empty()
    assert golden.frame("get_cuda_kernel_launch_stats.rank0").is_empty()
    assert not (golden.folder / "get_temporal_breakdown.csv").exists()  # HTA ended in an error
