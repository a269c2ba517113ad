"""What runs on a device; and the training thread that stands for it where nothing was recorded."""

from __future__ import annotations

import polars as pl

from tracekit.derive.activity import HOST_DEVICE, activity, training_thread
from tracekit.derive.breakdown import breakdown


def classes(run):
    rows = activity(run, 0).select("class", pl.col("start_ns") // 1000, pl.col("end_ns") // 1000)
    return rows.collect().rows()


def test_each_event_carries_the_call_that_launched_it(make_run, trace):
    trace.kernel(10, 5, launched=(2, 3), thread=4)
    trace.kernel(20, 5)
    rows = activity(make_run(trace), 0).collect()
    columns = ("launch_start_ns", "launch_end_ns", "launch_thread")
    assert rows.select(columns).rows() == [(2_000, 5_000, 4), (None, None, None)]


def test_one_launch_may_own_many_kernels(make_run, trace):
    trace.kernel(10, 5, launched=2)  # a graph: both kernels carry its correlation
    trace.add("kernels", 20, 5, name="gemm", device=0, stream=7, correlation=1, kind="gemm")
    rows = activity(make_run(trace), 0).collect()
    assert rows["launch_start_ns"].to_list() == [2_000, 2_000]


def test_a_memset_is_a_copy_and_a_collective_communicates(make_run, trace):
    trace.copy(0, 1, "memset").copy(5, 1, "DtoH").kernel(10, 1).collective(15, 1)
    found = [name for name, _, _ in classes(make_run(trace))]
    assert found == ["copy", "copy", "compute", "communication"]


def test_without_device_events_operators_compute_and_gloo_communicates(make_run, trace):
    trace.step(1, 0, 200)
    trace.op(0, 50, "aten::linear").op(10, 30, "aten::addmm")  # the inner one counts once
    trace.op(60, 10, "c10d::allreduce_")  # a launch
    trace.op(60, 100, "aten::mul", thread=2)  # another thread
    trace.gloo(62, 40)
    run = make_run(trace)
    assert classes(run) == [("compute", 0, 50), ("communication", 62, 102)]
    assert activity(run, 0).collect()["device"].unique().to_list() == [HOST_DEVICE]
    row = breakdown(run, 0).filter(pl.col("step").is_null()).collect().row(0, named=True)
    assert (row["exposed_compute_ns"], row["exposed_communication_ns"]) == (50_000, 40_000)
    assert row["idle_ns"] == 12_000


def test_an_operator_that_communicates_waits_and_only_what_it_calls_computes(make_run, trace):
    trace.op(0, 100, "autograd::engine::evaluate_function: PostBackward")
    trace.op(0, 99, "PostBackward").op(5, 10, "aten::copy_")
    trace.op(20, 70, "c10d::reduce_scatter_")
    trace.gloo(22, 60)
    trace.op(90, 5, "aten::div")
    trace.op(110, 10, "aten::mm")  # ends before the next call begins
    trace.op(120, 10, "c10d::allreduce_")
    assert classes(make_run(trace)) == [
        ("compute", 5, 15),
        ("communication", 22, 82),
        ("compute", 90, 95),
        ("compute", 110, 120),
    ]


def test_an_operator_without_shapes_works_on_those_of_the_first_one_inside(make_run, trace):
    trace.op(0, 50, "autograd::engine::evaluate_function: AddmmBackward0")
    trace.add("cpu_ops", 1, 48, name="AddmmBackward0", thread=1, shapes="[[64, 256]]")
    trace.add("cpu_ops", 2, 10, name="aten::mm", thread=1, shapes="[[64, 256], [256, 8]]")
    trace.op(60, 10, "autograd::engine::evaluate_function: Empty")  # nothing inside
    trace.add("cpu_ops", 70, 10, name="aten::mm", thread=1, shapes="[[8, 8], [8, 8]]")
    work = activity(make_run(trace), 0).collect()["work"].to_list()
    assert work == ["[[64, 256]]", None, "[[8, 8], [8, 8]]"]


def test_the_input_pipeline_and_checkpoints_are_no_compute(make_run, trace):
    trace.step(1, 0, 400)
    trace.op(0, 40, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
    trace.op(5, 30, "aten::stack")  # inside it
    trace.op(50, 20, "aten::linear")
    trace.annotation(100, 50, "dataloader_next")
    trace.op(110, 30, "aten::randn")  # inside the annotation
    trace.op(200, 40, "torch.save")
    trace.op(300, 10, "aten::mm")
    assert classes(make_run(trace)) == [("compute", 50, 70), ("compute", 300, 310)]


def test_the_training_thread_is_the_one_with_the_marks_else_the_busiest(make_run, runs):
    marked = runs.Trace().op(0, 10, thread=1).op(0, 90, thread=2)
    marked.annotation(0, 100, "ProfilerStep#3", thread=1)
    busiest = runs.Trace().op(0, 10, thread=1).op(0, 90, thread=2)
    run = make_run({0: marked, 1: busiest, 2: runs.Trace()})
    assert [training_thread(run, rank) for rank in (0, 1, 2)] == [1, 2, None]
