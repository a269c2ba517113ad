"""Each category of event becomes rows of its table; nothing recorded is thrown away."""

from __future__ import annotations

import pytest

from tracekit.collectors.chrome_trace.columns import CATEGORIES
from tracekit.collectors.chrome_trace.events import _ARGS


def x(cat, name, ts, dur, /, *, pid=0, tid=1, **args):
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": ts,
        "dur": dur,
        "args": args,
    }


def test_an_unknown_category_is_kept_by_name(trace, kernel, read):
    found = read(trace([kernel(1), x("hpu_op", "matmul", 2000, 5), x("", "nameless", 3000, 5)]))
    rows = found.table("other_events").select("name", "category", "start_ns", "dur_ns").rows()
    assert rows == [("matmul", "hpu_op", 2_000_000, 5000), ("nameless", "", 3_000_000, 5000)]


def test_every_known_category_lands_in_its_table(trace, read):
    events = [x(cat, f"e{i}", 10 * i + 10, 1) for i, cat in enumerate(CATEGORIES)]
    found = read(trace(events))
    for i, (cat, table) in enumerate(CATEGORIES.items()):
        assert f"e{i}" in found.names(table) if table != "syncs" else True, cat
    assert sum(found.capture.n_by_category.values()) == len(CATEGORIES)
    assert "other_events" not in found.capture.n_rows


def test_categories_and_keys_of_2020_are_read_as_todays(read):
    found = read(
        [
            x(
                "Operator",
                "aten::mm",
                10,
                5,
                tid="123 (python)",
                **{"external id": 4, "Input dims": [[2, 3], []]},
            ),
            x(
                "Runtime",
                "cudaLaunchKernel",
                11,
                2,
                tid="123 (python)",
                **{"correlation": 9, "external id": 4},
            ),
            x(
                "Kernel",
                "gemm",
                14,
                3,
                pid="0",
                tid="stream 7",
                **{"correlation": 9, "external id": 4, "device": 0, "stream": 7},
            ),
            x(
                "Memcpy",
                "Memcpy HtoD (Pageable -> Device)",
                20,
                1,
                tid="stream 7",
                bytes=64,
                device=0,
                stream=7,
            ),
        ]
    )
    op = found.table("cpu_ops").row(0, named=True)
    assert (op["thread"], op["external_id"], op["shapes"]) == (123, 4, "[[2, 3], []]")
    call = found.table("launches").row(0, named=True)
    assert (call["correlation"], call["external_id"], call["role"]) == (9, 4, "launch")
    assert found.table("kernels").select("device", "stream", "correlation").row(0) == (0, 7, 9)
    copy = found.table("copies").row(0, named=True)
    assert (copy["kind"], copy["host_memory"], copy["size_bytes"]) == ("HtoD", "pageable", 64)


def test_a_row_says_device_and_stream_where_its_arguments_do_not(trace, read):
    found = read(trace([x("kernel", "k", 10, 5, pid=3, tid=20)]))
    assert found.table("kernels").select("device", "stream").row(0) == (3, 20)


def test_two_devices_in_one_file_stay_apart(trace, kernel, read):
    both = [kernel(1), kernel(1, pid=1, args={"device": 1, "stream": 7, "correlation": 2})]
    found = read(
        trace(
            both,
            deviceProperties=[
                {"id": 0, "name": "GPU"},
                {"id": 1, "name": "GPU"},
                {"id": 2, "name": "GPU"},
            ],
        )
    )
    assert found.table("kernels")["device"].to_list() == [0, 1]
    assert found.table("ranks").select("device", "is_used").rows() == [
        (0, True),
        (1, True),
        (2, False),
    ]


def test_one_graph_launch_owns_many_kernels(trace, read):
    launch = x("cuda_runtime", "cudaGraphLaunch", 10, 5, correlation=77)
    nodes = [
        x(
            "kernel",
            f"n{i}",
            20 + i,
            1,
            tid=7,
            correlation=77,
            device=0,
            stream=7,
            **{"graph id": 3},
        )
        for i in range(1000)
    ]
    found = read(trace([launch, *nodes]))
    kernels = found.table("kernels")
    assert kernels["correlation"].to_list() == [77] * 1000
    assert kernels["graph_id"].unique().to_list() == [3]
    assert found.table("launches").select("role", "correlation").row(0) == ("graph-launch", 77)
    assert "device events without a launch" not in found.checks()


def test_a_triton_operator_with_a_stream_is_a_host_operator(trace, read):
    op = x(
        "cpu_op",
        "triton_poi_fused_0",
        10,
        5,
        tid=42,
        stream=0,
        grid="grid(1024,)",
        num_warps=4,
        kernel_backend="triton",
    )
    found = read(trace([op]))
    assert found.table("cpu_ops").select("name", "thread").row(0) == ("triton_poi_fused_0", 42)
    assert "kernels" not in found.capture.n_rows


def test_mtia_requests_are_copies_and_its_other_events_kernels(trace, read):
    found = read(
        trace(
            [
                x("mtia_runtime", "runFunction", 5, 2, correlation=1),
                x(
                    "mtia_ccp_events",
                    "dma_request",
                    10,
                    5,
                    size=4096,
                    direction="HOST_TO_DEVICE",
                    correlation=1,
                ),
                x("mtia_ccp_events", "fc_kernel", 20, 5, correlation=2),
            ]
        )
    )
    assert found.table("copies").select("kind", "size_bytes").row(0) == ("HtoD", 4096)
    assert found.names("kernels") == ["fc_kernel"]
    assert found.table("launches")["role"].to_list() == ["launch"]


def test_xpu_calls_are_launches(trace, read):
    found = read(
        trace(
            [
                x("xpu_runtime", "urEnqueueKernelLaunch", 5, 2, correlation=1),
                x("xpu_driver", "zeCommandListAppendMemoryCopy", 8, 2, correlation=2),
                x("kernel", "gemm", 9, 2, correlation=1, device=0),
            ]
        )
    )
    assert found.names("launches") == ["urEnqueueKernelLaunch", "zeCommandListAppendMemoryCopy"]
    assert found.table("kernels").select("device", "stream").row(0) == (0, 1)


def test_a_communicator_id_of_64_bits_stays_whole(trace, read):
    comms_id = 2**64 - 3
    args = {
        "Collective name": "allreduce",
        "dtype": "Float",
        "In msg nelems": 4,
        "Out msg nelems": 4,
        "Group size": 2,
        "Comms Id": comms_id,
        "Seq": 5,
    }
    found = read(
        trace([x("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 10, 5, tid=20, **args)])
    )
    row = found.table("collectives").row(0, named=True)
    assert (row["comms_id"], row["sequence"], row["bytes_in"]) == (comms_id, 5, 16)


def test_kernels_without_a_duration_are_dropped_and_counted(trace, kernel, read):
    broken = kernel(2)
    del broken["dur"]
    found = read(trace([kernel(1), broken, kernel(3, dur="x"), kernel(4, dur=None)]))
    assert found.names() == ["k1"]
    assert found.capture.dropped == {"no duration": 3}
    assert found.checks()["dropped: no duration"] == 3


def test_a_trace_whose_kernels_all_lack_their_duration_is_read_for_the_rest(trace, kernel, read):
    broken = kernel(1)
    del broken["dur"]
    found = read(trace([broken]))
    assert found.names() == []
    assert found.capture.dropped == {"no duration": 1}


def test_instants_of_memory_become_rows(trace, kernel, read):
    event = {
        "ph": "i",
        "cat": "cpu_instant_event",
        "name": "[memory]",
        "s": "t",
        "pid": 0,
        "tid": 1,
        "ts": 50,
        "args": {
            "Total Reserved": 300,
            "Total Allocated": 200,
            "Bytes": -100,
            "Device Id": 0,
            "Device Type": 1,
        },
    }
    found = read(trace([kernel(1), event]))
    assert found.table("memory").row(0) == (50_000, "cuda", 0, -100, 200, 300)


def test_flows_marks_and_counters_are_no_rows(trace, kernel, read):
    others = [
        {"ph": ph, "name": "x", "cat": "ac2g", "pid": 0, "tid": 0, "ts": 10, "id": 1}
        for ph in "sfiCMBE"
    ]
    found = read(trace([kernel(1), *others]))
    assert found.capture.n_events == 8
    n_remarks = len(found.checks())
    assert found.capture.n_rows == {"kernels": 1, "ranks": 1, "capture_quality": n_remarks}


def test_the_window_of_the_capture_is_kept(trace, kernel, read):
    found = read(
        trace(
            [
                kernel(1),
                x("Trace", "PyTorch Profiler (0)", 500, 9500, pid="Spans", tid="PyTorch Profiler"),
            ]
        )
    )
    assert (found.capture.window_start_ns, found.capture.window_end_ns) == (500_000, 10_000_000)


def test_concrete_inputs_are_never_stored(trace, read, tmp_path):
    op = x(
        "cpu_op",
        "aten::add",
        10,
        5,
        **{"Concrete Inputs": ["secret-value", "7"], "Input type": ["float"], "Input Dims": [[2]]},
    )
    read(trace([op]))
    written = b"".join(
        path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()
    )
    assert b"secret-value" not in written


def test_host_rows_are_sorted_and_device_rows_sorted_as_a_whole(trace, kernel, read):
    found = read(trace([kernel(3), kernel(1), kernel(2)]))
    assert found.names() == ["k1", "k2", "k3"]


ODD = (
    ("kernel", "ncclKernel_AllReduce"),
    ("kernel", "gemm"),
    ("cpu_op", "record_param_comms"),
    ("cuda_sync", "Stream Sync"),
    ("gpu_memcpy", "Memcpy DtoD"),
    ("cuda_runtime", "cudaLaunchKernel"),
    ("user_annotation", "gloo:all_reduce"),
    ("python_function", "f"),
    ("gpu_user_annotation", "nccl:all_reduce"),
    ("mtia_ccp_events", "dma_request"),
)


@pytest.mark.parametrize("value", [[], {}, "x", -1, 2**70, 1.5, True, None, [[1]], {"a": [2**80]}])
def test_arguments_of_any_type_never_stop_the_reading(trace, kernel, read, value):
    odd = dict.fromkeys(_ARGS.values(), value)
    events = [kernel(1)]
    for ts, (cat, name) in enumerate(ODD, start=1):
        events.append(x(cat, name, ts, 1, pid=value, tid=value, **odd))
    events.append({"ph": "i", "name": "[memory]", "ts": 5, "args": odd, "pid": value, "tid": value})
    found = read(trace(events))
    assert sum(found.capture.n_by_category.values()) == 11
    assert found.capture.n_rows["kernels"] == 3
    assert found.capture.dropped == {}
