"""HTA's figures of kernels: what each took, what kinds took together, how far they overlap.

All from kernels, copies and memsets alone: synchronisation rows do not matter here. Where times
have fractions of a µs or host operators name a stream, HTA's figures are ours after its rounding
and with those operators; see test_hta_breakdown.py.
"""

from __future__ import annotations

from collections import Counter

import polars as pl
import pytest

from tracekit.derive.activity import COMPUTE, COPY
from tracekit.derive.intervals import length_ns, sweep
from tracekit.derive.kernel_kinds import COMMUNICATION

EXPLAINED = (
    "modded_nanogpt_8rank",
    "mtia_trace",
    "nccl_parser_config",
    "nccl_parser_config_last",
    "triton_example",
)
DUR_US = (pl.col("end_ns") - pl.col("start_ns")) / 1000
FIGURES = {
    "sum (us)": DUR_US.sum(),
    "max (us)": DUR_US.max(),
    "min (us)": DUR_US.min(),
    "stddev": DUR_US.std().fill_null(0),
    "mean (us)": DUR_US.mean(),
}


@pytest.fixture
def ours(golden):
    """Our events by rank: exact where HTA's times are, else after what HTA does to them."""
    events_of = golden.changed if golden.name in EXPLAINED else golden.kept
    return {rank: events_of(rank) for rank in golden.run.ranks}


def test_each_kernel_took_what_ours_took(hta, golden, ours):
    expected = golden.frame("get_gpu_kernel_breakdown_kernels_all").sort("rank", "name")
    kinds = {kind: name for name, kind in hta.CLASSES.items()}
    counted = [
        events.filter(pl.col("class").is_in([COMPUTE, COMMUNICATION, COPY]))
        .group_by("name", kernel_type=pl.col("class").replace_strict(kinds, default=None))
        .agg(**FIGURES)
        .with_columns(rank=pl.lit(rank, dtype=pl.Int64))
        for rank, events in ours.items()
    ]
    found = pl.concat(counted).sort("rank", "name")
    names = ["rank", "name", "kernel_type"]
    assert found.select(names).equals(expected.select(names))
    for figure in FIGURES:
        assert found[figure].to_list() == pytest.approx(expected[figure].to_list(), abs=1e-6)


def test_where_times_have_fractions_the_exact_durations_differ(golden):
    expected = golden.frame("get_gpu_kernel_breakdown_kernels_all")["sum (us)"].sum()
    exact_us = sum(golden.kept(rank).select(DUR_US.sum()).item() for rank in golden.run.ranks)
    assert (exact_us == pytest.approx(expected)) == (golden.name not in EXPLAINED)


def test_kinds_of_kernels_overlap_as_ours_do(hta, golden, ours):
    expected = dict(
        golden.frame("get_gpu_kernel_breakdown_types_all").select("kernel_type", "sum").rows()
    )
    found = Counter()
    for events in ours.values():
        pieces = sweep(events.lazy(), tuple(hta.CLASSES.values())).collect()
        for start_ns, end_ns, *n_open in pieces.rows():
            running = [name for name, n in zip(hta.CLASSES, n_open, strict=True) if n]
            found[" overlapping ".join(running)] += (end_ns - start_ns) / 1000
    del found[""]
    below_zero_us = sum(hta.n_below_zero(events) for events in ours.values())
    for kind in found | expected:
        assert found[kind] == pytest.approx(expected.get(kind, 0), abs=below_zero_us), kind


def overlap_percent(events):
    both = [COMPUTE, COMMUNICATION]
    lengths = [
        length_ns(events.lazy().filter(pl.col("class").is_in(names))).collect().item()
        for names in ([COMPUTE], [COMMUNICATION], both)
    ]
    compute, communication, either = lengths
    return 100 * (compute + communication - either) / communication if communication else None


def test_the_overlap_of_communication_is_ours(golden, ours):
    for rank, percent in golden.frame("get_comm_comp_overlap").rows():
        found = overlap_percent(ours[rank])
        assert percent == (None if found is None else pytest.approx(found, abs=0.0051))
        exact = overlap_percent(golden.kept(rank))
        if found is not None:
            assert (percent == pytest.approx(exact, abs=0.0051)) == (golden.name not in EXPLAINED)
