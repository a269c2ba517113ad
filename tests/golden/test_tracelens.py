"""The GPU timeline of whole traces against TraceLens, in ms.

Three differences of definition are taken out before the two are compared, from our own tables:
there a memset counts as computation, device events without a launch in the file are left out, and
times are doubles. At 10¹² µs a double is 0.2 ns coarse, so that its sums over some thousand events
are off by up to 40 ns; ours are exact.
"""

from __future__ import annotations

import json

import polars as pl
import pytest

from tracekit.derive.activity import COMPUTE, COPY, activity
from tracekit.derive.intervals import sweep
from tracekit.derive.kernel_kinds import COMMUNICATION

TRACES = tuple(
    f"AMD-AGI+TraceLens/tests/traces/{name}"
    for name in (
        "h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
        "h100/facebook_timesformer-base-finetuned-k400__1016002.json.gz",
        "h100/gaunernst_bert-small-uncased__1016001.json.gz",
        "mi300/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
        "mi300/facebook_timesformer-base-finetuned-k400__1016002.json.gz",
        "mi300/gaunernst_bert-small-uncased__1016001.json.gz",
        "mi300/resnet_act_checkpoint.json.gz",
        "inference/sglang_decode/sglang_Qwen3-8B_decode.json.gz",
        "torch_compile_triton/trace.json.gz",
        "inference/vllm_decode_full/graph_execution.json.gz",
        "inference/xdit_flux.1_aiter_sage/profile_trace_rank_0.json.gz",
    )
)


TOLERANCE_MS = 40e-6
WITHOUT_MEMSETS = "resnet_act_checkpoint"
"""In this one the reference counts its 81 memsets neither as computation nor as copies."""


@pytest.fixture
def expected(traces):
    return json.loads((traces / "golden/tracelens_timeline.json").read_text())["traces"]


def test_every_trace_with_a_timeline_is_compared(expected):
    assert set(expected) == set(TRACES)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: "/".join(path.split("/")[3:5]))
def test_the_timeline_equals_the_reference(expected, converted, path):
    run = converted(path)
    is_memset = pl.col("kind") == "memset"
    is_counted = ~is_memset.fill_null(value=False) | pl.lit(WITHOUT_MEMSETS not in path)
    events = (
        activity(run, run.ranks[0])
        .filter(is_counted)
        .drop_nulls("launch_start_ns")
        .with_columns(pl.when(is_memset).then(pl.lit(COMPUTE)).otherwise("class").alias("class"))
    )
    pieces = sweep(events, (COMPUTE, COMMUNICATION, COPY)).collect()
    computing, communicating, copying = (
        pl.col(f"n_{name}") > 0 for name in (COMPUTE, COMMUNICATION, COPY)
    )
    busy = computing | communicating | copying
    where = {
        "computation_time": computing,
        "exposed_comm_time": communicating & ~computing,
        "exposed_memcpy_time": copying & ~computing & ~communicating,
        "busy_time": busy,
        "idle_time": ~busy,
        "total_time": pl.lit(value=True),
        "total_comm_time": communicating,
        "total_memcpy_time": copying,
    }
    dur_ns = pl.col("end_ns") - pl.col("start_ns")
    ours = pieces.select(**{name: dur_ns.filter(mask).sum() for name, mask in where.items()})
    for name, value_ns in ours.row(0, named=True).items():
        assert value_ns / 1e6 == pytest.approx(expected[path][name], abs=TOLERANCE_MS), name
