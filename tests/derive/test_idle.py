"""Section 4 of the definitions: each gap has exclusive causes that add up to idle time (µs)."""

from __future__ import annotations

import polars as pl
import pytest

from tracekit.derive.breakdown import breakdown
from tracekit.derive.idle import idle
from tracekit.derive.steps import windows

TRACES = (
    "pytorch+torchrec/examples/golden_training/trace/sst_long_a2a_optimizer_3",
    "pytorch+torchrec/examples/golden_training/log/resnet18",
    "cpu-gloo-torch213/ddp2_gloo_dataloader_bound",
    "AMD-AGI+TraceLens/tests/traces/mi300/resnet_act_checkpoint.json.gz",
    "AMD-AGI+TraceLens/tests/traces/inference/vllm_decode_full/graph_execution.json.gz",
)


def parts(run, rank=0):
    """(start, duration, cause) in µs."""
    us = [pl.col("start_ns") / 1000, pl.col("dur_ns") / 1000]
    return idle(run, rank).select(*us, "cause").collect().rows()


def details(run):
    return idle(run, 0).collect()["detail"].to_list()


def test_a_gap_without_a_launch_is_not_recorded_and_never_guessed(make_run, trace):
    trace.kernel(0, 10).kernel(50, 10)
    trace.op(12, 30, "enumerate(DataLoader)#_MultiProcessing.__next__")
    assert parts(make_run(trace)) == [(10, 40, "not recorded")]


def test_a_launch_before_the_gap_is_latency_up_to_the_devices_floor(make_run, trace):
    for place in range(200):  # gaps of 2 µs between kernels that were all launched long before
        trace.kernel(100 + 12 * place, 10, launched=(place / 4, 0.1))
    trace.kernel(100 + 12 * 200 + 300, 10, launched=60)  # waits 302 µs for something else
    found = parts(make_run(trace))
    assert found[:199] == [(110 + 12 * place, 2, "launch latency") for place in range(199)]
    # p99 of the 200 gaps is 2 µs; the rest of the last one is a wait that the trace must show
    assert found[199:] == [(2498, 2, "launch latency"), (2500, 300, "dependency")]


def test_the_floor_is_at_most_20_us(make_run, trace):
    trace.kernel(0, 10, launched=(-9, 1)).kernel(110, 10, launched=(-5, 1))
    assert parts(make_run(trace)) == [(10, 20, "launch latency"), (30, 80, "dependency")]


def test_the_host_owes_the_gap_until_its_launch_returns_and_latency_the_rest(make_run, trace):
    trace.kernel(0, 10, launched=(-5, 2)).kernel(100, 10, launched=(60, 5))
    # never a dependency: 35 µs after the launch returned are latency, however long
    assert parts(make_run(trace)) == [(10, 55, "host-other"), (65, 35, "launch latency")]


def test_a_kernel_that_starts_before_its_launch_returns_leaves_the_whole_gap_to_the_host(
    make_run, trace
):
    trace.kernel(0, 10, launched=(-5, 2)).kernel(50, 10, launched=(45, 20))
    assert parts(make_run(trace)) == [(10, 40, "host-other")]


def gap(trace, *, busy=100, idle_us=200, thread=1):
    """A kernel until `busy`, then a gap until the next one, launched 5 µs before its start."""
    trace.kernel(0, busy, launched=(-10, 2), thread=thread)
    at = busy + idle_us
    return trace.kernel(at, 10, launched=(at - 5, 5), thread=thread)


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "input-pipeline"),
        ("dataloader_next", "input-pipeline"),
        ("torch.save", "checkpoint"),
        ("save_checkpoint", "checkpoint"),
        ("gc", "garbage-collection"),
        ("DeepSpeedCPUAdam::step", "cpu-optimizer"),
        ("TorchDynamo Cache Lookup", "compilation"),
        ("aten::add", "launch-overhead"),
    ],
)
def test_the_class_that_covers_most_of_the_host_part_is_its_cause(make_run, trace, name, cause):
    gap(trace).op(110, 150, name)
    assert parts(make_run(trace)) == [(100, 200, cause)]
    assert details(make_run(trace)) == [name]


def test_an_annotation_names_a_cause_too(make_run, trace):
    gap(trace).annotation(110, 150, "dataloader_next")
    assert parts(make_run(trace)) == [(100, 200, "input-pipeline")]


@pytest.mark.parametrize(
    ("name", "role", "cause"),
    [("cudaMalloc", "allocation", "allocator"), ("cuModuleLoadData", "module-load", "compilation")],
)
def test_runtime_calls_name_a_cause(make_run, trace, name, role, cause):
    gap(trace).call(110, 150, name, role=role)
    assert parts(make_run(trace)) == [(100, 200, cause)]


def test_time_under_no_operator_is_the_hosts_other_time(make_run, trace):
    gap(trace).op(110, 40, "aten::add")  # 40 of 200
    assert parts(make_run(trace)) == [(100, 200, "host-other")]


@pytest.mark.parametrize("end", [92, 100, 150, 290])
def test_a_blocking_call_that_waited_for_the_device_owns_the_whole_part(make_run, trace, end):
    gap(trace).op(20, end - 18, "aten::item").call(
        22, end - 22, "cudaStreamSynchronize", role="sync"
    )
    trace.op(end + 2, 200 - end, "aten::add")  # what follows is what a drained queue costs
    run = make_run(trace)
    assert parts(run) == [(100, 200, "host-sync")]
    assert details(run) == ["cudaStreamSynchronize in aten::item"]


def test_a_blocking_call_that_ended_earlier_drained_nothing(make_run, trace):
    gap(trace).call(20, 69, "cudaStreamSynchronize", role="sync")  # ends 11 µs before the gap
    assert parts(make_run(trace)) == [(100, 200, "host-other")]


def test_a_blocking_call_that_began_in_the_gap_waited_for_nothing(make_run, trace):
    gap(trace).call(120, 3, "cudaStreamSynchronize", role="sync").op(110, 170, "aten::add")
    assert parts(make_run(trace)) == [(100, 200, "launch-overhead")]


def test_a_device_clock_that_is_early_hides_no_blocking_call(make_run, trace):
    # the first kernel starts 30 µs before it is launched: device times are 30 µs early at least
    trace.kernel(-40, 10, launched=(-10, 1))
    gap(trace).call(120, 20, "cudaStreamSynchronize", role="sync").op(150, 130, "aten::add")
    assert parts(make_run(trace))[-1] == (100, 200, "host-sync")


def test_a_memset_does_not_block(make_run, trace):
    trace.kernel(0, 60, launched=(-10, 2))
    trace.copy(60, 40, "memset", launched=(10, 95), call="cudaMemset")
    trace.kernel(300, 10, launched=(295, 5))
    assert parts(make_run(trace)) == [(100, 200, "host-other")]


def test_a_query_does_not_block(make_run, trace):
    gap(trace).call(95, 10, "cudaEventQuery", role="sync").op(110, 170, "aten::add")
    assert parts(make_run(trace)) == [(100, 200, "launch-overhead")]


@pytest.mark.parametrize(
    ("call", "memory", "cause"),
    [
        ("cudaMemcpy", "pinned", "host-sync"),
        ("cudaMemcpyAsync", "pageable", "host-sync"),
        ("cudaMemcpyAsync", "pinned", "host-other"),
    ],
)
def test_synchronous_and_pageable_copies_block(make_run, trace, call, memory, cause):
    trace.kernel(0, 60, launched=(-10, 2))
    trace.copy(60, 40, "DtoH", launched=(10, 95), call=call, host_memory=memory)
    trace.kernel(300, 10, launched=(295, 5))
    assert parts(make_run(trace)) == [(100, 200, cause)]


def test_a_thread_that_shows_only_the_launch_yields_to_the_training_thread(make_run, trace):
    trace.step(1, -20, 400)  # the mark lies on thread 1
    gap(trace, thread=2).op(110, 170, "enumerate(DataLoader)#x.__next__", thread=1)
    assert parts(make_run(trace)) == [(100, 200, "input-pipeline")]


def test_a_thread_that_shows_its_own_work_keeps_it(make_run, trace):
    trace.step(1, -20, 400)
    gap(trace, thread=2).op(110, 170, "aten::mm", thread=2)
    trace.op(105, 190, "enumerate(DataLoader)#x.__next__", thread=1)
    assert parts(make_run(trace)) == [(100, 200, "launch-overhead")]


def test_each_device_has_its_own_gaps(make_run, trace):
    trace.kernel(0, 10, launched=(-9, 1)).kernel(50, 10, launched=(45, 5))
    trace.kernel(0, 40, launched=(-9, 1), device=1).kernel(60, 10, launched=(55, 5), device=1)
    rows = idle(make_run(trace), 0).collect()
    assert rows.select("device", "start_ns", "dur_ns").rows() == [
        (0, 10_000, 40_000),
        (1, 40_000, 20_000),
    ]


def test_where_the_thread_stands_for_the_device_no_gap_is_launch_overhead(make_run, trace):
    trace.step(1, 0, 300)
    trace.op(0, 50).op(250, 50).op(60, 150, "dataloader_next")
    trace.op(320, 10).op(345, 10)
    assert parts(make_run(trace)) == [
        (50, 200, "input-pipeline"),
        (300, 20, "host-other"),
        (330, 15, "host-other"),
    ]


def test_parts_know_the_step_in_which_they_start(make_run, trace):
    trace.step(1, 0, 100).step(2, 100, 100)
    trace.kernel(10, 10, launched=5).kernel(50, 10, launched=40).kernel(150, 10, launched=140)
    rows = idle(make_run(trace), 0).select("step", "dur_ns").collect()
    assert rows.group_by("step").agg(pl.col("dur_ns").sum()).rows() == [(1, 120_000)]


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.rsplit("/", 1)[-1])
def test_causes_add_up_to_the_idle_time_of_real_traces(traces, tmp_path, runs, path):
    run = runs.converted(traces / "traces" / path, tmp_path / "run")
    for rank in run.ranks:
        rows = idle(run, rank).collect()
        assert (rows["dur_ns"] > 0).all()
        whole = breakdown(run, rank).filter(pl.col("step").is_null()).collect()
        by_device = rows.group_by("device").agg(pl.col("dur_ns").sum())
        both = whole.join(by_device, on="device", how="left").fill_null(0)
        assert both["dur_ns_right"].to_list() == both["idle_ns"].to_list()
        steps = breakdown(run, rank).drop_nulls("step").collect()
        in_steps = rows.drop_nulls("step").group_by("device", "step").agg(pl.col("dur_ns").sum())
        found = steps.join(in_steps, on=["device", "step"], how="left").fill_null(0)
        assert found["dur_ns_right"].to_list() == found["idle_ns"].to_list()
        assert steps.height == windows(run, rank).collect().height


def test_a_launch_that_spans_the_start_of_the_gap_is_split(make_run, trace):
    trace.kernel(0, 10, launched=(-5, 2)).kernel(60, 10, launched=(5, 25))  # returns at 30
    assert parts(make_run(trace)) == [(10, 20, "launch-overhead"), (30, 30, "launch latency")]


def test_kernels_of_one_graph_wait_for_each_other_and_not_for_the_host(make_run, trace):
    trace.kernel(0, 10, launched=(-5, 2))
    trace.call(40, 10, "cudaGraphLaunch", role="graph-launch", correlation=77)
    for start in (60, 71, 82):
        trace.kernel(start, 10)
        trace.rows["kernels"][-1]["correlation"] = 77
    trace.op(12, 26, "aten::copy_")
    # the host until the call returns at 50, then latency; between its kernels 1 µs each
    assert parts(make_run(trace)) == [
        (10, 40, "launch-overhead"),
        (50, 10, "launch latency"),
        (70, 1, "launch latency"),
        (81, 1, "launch latency"),
    ]


def test_a_gap_is_one_of_all_streams_of_the_device(make_run, trace):
    trace.kernel(0, 30, launched=(-5, 2)).kernel(50, 10, launched=(44, 2))
    trace.kernel(20, 25, launched=(-3, 2), stream=8)  # ends at 45: the gap is [45, 50)
    assert parts(make_run(trace)) == [(45, 1, "launch-overhead"), (46, 4, "launch latency")]


def test_what_lies_inside_another_call_counts_once(make_run, trace):
    gap(trace)
    trace.annotation(100, 200, "training step").op(105, 180, "aten::linear")
    trace.op(106, 170, "aten::addmm").call(110, 100, "cudaMalloc", role="allocation")
    # the allocator covers 100 µs of the part, operators 80 more than that: 180 − 100
    assert parts(make_run(trace)) == [(100, 200, "allocator")]


def test_other_threads_do_not_explain_the_launching_one(make_run, trace):
    trace.step(1, -20, 400)
    gap(trace).op(110, 170, "aten::mm")
    trace.call(100, 190, "cudaHostAlloc", role="allocation", thread=3)  # the pin-memory thread
    trace.op(100, 190, "enumerate(DataLoader)#x.__next__", thread=4)  # another loader
    assert parts(make_run(trace)) == [(100, 200, "launch-overhead")]


def test_backward_on_its_own_thread_is_asked_there(make_run, trace):
    # the training thread waits in loss.backward(); the autograd thread allocates before it launches
    trace.step(1, -20, 400).op(-15, 330, "autograd::wait", thread=1)
    gap(trace, thread=2).op(101, 190, "autograd::engine::evaluate_function", thread=2)
    trace.call(110, 150, "cudaMalloc", role="allocation", thread=2)
    assert parts(make_run(trace)) == [(100, 200, "allocator")]


def test_devices_of_one_file_have_causes_of_their_own(make_run, trace):
    gap(trace).op(110, 170, "enumerate(DataLoader)#x.__next__")
    trace.kernel(0, 100, launched=(-10, 2), device=1, thread=5)
    trace.kernel(300, 10, launched=(295, 5), device=1, thread=5).op(101, 190, "aten::mm", thread=5)
    rows = idle(make_run(trace), 0).select("device", "dur_ns", "cause").collect().rows()
    assert rows == [(0, 200_000, "input-pipeline"), (1, 200_000, "launch-overhead")]
