"""The checks of a capture, each from a trace made for it; and durations that cannot be true."""

from __future__ import annotations


def launch(number, ts):
    return {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": "cudaLaunchKernel",
        "pid": 1,
        "tid": 1,
        "ts": ts,
        "dur": 1,
        "args": {"correlation": number},
    }


def window(end):
    return {
        "ph": "X",
        "cat": "Trace",
        "name": "PyTorch Profiler (0)",
        "pid": "Spans",
        "tid": "x",
        "ts": 1,
        "dur": end - 1,
    }


def test_two_microseconds_before_the_launch_are_rounding_where_times_are_whole(trace, kernel, read):
    found = read(trace([kernel(1), launch(1, 1002), kernel(2), launch(2, 2000)]))
    assert "started before its launch" not in found.checks()
    assert "whole microseconds" in found.checks()


def test_three_microseconds_before_the_launch_are_not(trace, kernel, read):
    found = read(trace([kernel(1), launch(1, 1003), kernel(2), launch(2, 1990)]))
    assert found.checks()["started before its launch"] == 1
    detail = next(c.detail for c in found.capture.quality if c.check.startswith("started"))
    assert detail.startswith("1 of 2 device events, by up to 3.0 µs")


def test_where_times_are_exact_one_nanosecond_is_too_early(trace, kernel, read):
    found = read(trace([kernel(1, ts=1000.5), launch(1, 1000.501), kernel(2, ts=2000.7)]))
    assert found.checks()["started before its launch"] == 1
    assert "whole microseconds" not in found.checks()


def test_kernels_without_a_launch_are_kept_and_counted(trace, kernel, read):
    found = read(trace([kernel(1), launch(1, 900), kernel(2), kernel(3)]))
    assert len(found.names()) == 3
    assert found.checks()["device events without a launch"] == 2


def test_launches_without_any_device_event_are_a_warning(trace, read):
    found = read(trace([launch(1, 1000), launch(2, 2000)]))
    assert found.checks()["no device events"] == 2


def test_a_job_of_many_ranks_without_communication_is_a_warning(trace, kernel, read):
    found = read(trace([kernel(1)], distributedInfo={"rank": 0, "world_size": 8}))
    assert found.checks()["no communication seen"] == 1


def test_a_negative_duration_becomes_zero(trace, kernel, read):
    found = read(trace([kernel(1), kernel(2, dur=-5), kernel(3)]))
    assert found.table("kernels")["dur_ns"].to_list() == [10_000, 0, 10_000]
    assert found.checks()["broken durations"] == 1


def test_a_negative_duration_on_the_host_becomes_zero(trace, kernel, read):
    found = read(trace([kernel(1), launch(1, 900), launch(2, 950) | {"dur": -7}]))
    assert found.table("launches")["dur_ns"].to_list() == [1000, 0]
    assert found.checks()["broken durations"] == 1


def test_a_kernel_past_the_window_ends_with_it(trace, kernel, read):
    found = read(trace([window(2005), kernel(1), kernel(2)]))
    assert found.table("kernels")["dur_ns"].to_list() == [10_000, 5000]
    assert found.checks()["broken durations"] == 1


def test_a_kernel_that_swallows_later_ones_ends_where_the_next_starts(trace, kernel, read):
    # 2,000 µs is more than 100 × the median of 10 µs, and k2 to k3 lie inside it
    spans = [kernel(n, name="k") for n in (1, 2, 3, 4)]
    spans[0]["dur"] = 2500
    found = read(trace(spans))
    assert found.table("kernels")["dur_ns"].to_list() == [1_000_000, 10_000, 10_000, 10_000]
    assert found.checks()["broken durations"] == 1


def test_a_long_kernel_with_nothing_inside_is_real(trace, kernel, read):
    spans = [kernel(n, name="k") for n in (1, 2, 3, 4)]
    spans[3]["dur"] = 5000
    found = read(trace(spans))
    assert found.table("kernels")["dur_ns"].to_list() == [10_000, 10_000, 10_000, 5_000_000]
    assert "broken durations" not in found.checks()


def test_a_short_overlap_on_one_stream_is_real_and_counted(trace, kernel, read):
    found = read(trace([kernel(1), kernel(2, ts=1005), kernel(3)]))
    assert found.table("kernels")["dur_ns"].to_list() == [10_000] * 3
    assert found.checks()["overlap on one stream"] == 1


def test_a_clean_trace_has_no_warning(trace, kernel, read):
    found = read(trace([kernel(1, ts=1000.123), launch(1, 990)]))
    assert [check for check in found.capture.quality if check.severity != "info"] == []


def test_launches_that_started_nothing_are_counted(trace, kernel, read):
    found = read(trace([kernel(1), launch(1, 900), launch(2, 950), launch(3, 960)]))
    assert found.checks()["launches without a device event"] == 2


def test_events_outside_the_capture_window_are_counted(trace, kernel, read):
    # the window runs from 1 to 900 µs; the kernel starts at 1000
    found = read(trace([kernel(1, ts=1000, dur=0), window(900)]))
    assert found.checks()["outside the capture window"] == 1


def test_names_that_the_profiler_could_not_write_are_counted(trace, kernel, read):
    found = read(trace([kernel(1) | {"name": "unknown"}, kernel(2)]))
    assert found.checks()["names not recorded"] == 1


def test_groups_whose_list_of_ranks_is_cut_are_counted(trace, kernel, read):
    call = kernel(1) | {"name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)"}
    call["args"] |= {
        "Collective name": "allreduce",
        "Process Group Name": "dp",
        "Process Group Ranks": "[0, 1, ...",
        "Group size": 64,
    }
    assert read(trace([call])).checks()["groups without their members"] == 1


def test_remarks_are_a_table_of_the_run(trace, kernel, read):
    found = read(trace([kernel(1), kernel(2)]))
    rows = found.table("capture_quality")
    assert dict(zip(rows["check"], rows["count"], strict=True)) == found.checks()
