"""Where HolisticTraceAnalysis 0.6.1 is wrong, ours is not: by the digits of the files themselves.

What it says of full queues and the critical path has no counterpart here yet: those tests show by
our tables why it cannot be right.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import polars as pl
import pytest

import tracekit
from tracekit.derive.activity import activity
from tracekit.derive.breakdown import breakdown
from tracekit.derive.intervals import length_ns
from tracekit.derive.kernel_totals import kernel_totals
from tracekit.findings import Status
from tracekit.sample_traces.simulator.engine import QUEUE

TRACELENS = "AMD-AGI+TraceLens/tests/traces"
DECODE = (
    "ModelTC+lightllm/test/model/logs/forward_decode_1"
    "/10-116-218-90_3090495.1743406976916608951.pt.trace.json.gz"
)
H100 = (
    "KellerJordan+modded-nanogpt/records/track_1_short/2025-10-31_AdamSyncGradientHook"
    "/modded-nanogpt-current-gpu-rank-00-chrome-trace.json.gz"
)
DEVICE = {"kernel", "gpu_memcpy", "gpu_memset"}
CALLS = {"cuda_runtime", "cuda_driver"}


def whole(run, rank=0):
    return breakdown(run, rank).filter(pl.col("step").is_null()).collect()


def device_events(hta, run, rank=0):
    return [e for e in hta.events_of(hta.source(run, rank)) if e.get("cat") in DEVICE]


def digits_ns(text):
    return int(Fraction(text) * 1000)


def figures(golden, rank):
    """What HTA prints of a rank: idle, compute, non-compute and kernel time in µs, then shares."""
    rows = golden.frame("get_temporal_breakdown").rows_by_key("rank", unique=True)
    return rows[rank]


def stragglers(run):
    result = tracekit.analyze(run, engine="local:1")
    return [f for f in result.findings if f.id == "straggler-rank" and f.status is Status.FOUND]


def test_whole_microseconds_make_idle_time_of_kernels(hta, golden_of):
    golden = golden_of("nccl_parser_config_last")
    exact = hta.measured_us(golden.run, 0, Fraction)
    idle, compute, *_ = figures(golden, 0)
    part = whole(golden.run).row(0, named=True)
    assert (part["idle_ns"], part["compute_ns"]) == (exact["idle"] * 1000, exact["compute"] * 1000)
    assert idle - exact["idle"] > 3400  # 3.4 ms of this trace are no idle time
    assert exact["compute"] - compute > 2600


@pytest.mark.slow
def test_whole_microseconds_make_events_shorter_than_nothing(hta, golden_of):
    golden = golden_of("modded_nanogpt_8rank")
    rows = golden.frame("get_gpu_kernel_breakdown_kernels_all").filter(pl.col("rank") == 0)
    below_zero = rows.filter(pl.col("min (us)") < 0)["name"].to_list()
    assert len(below_zero) == 2
    assert all(name.startswith(("Memcpy HtoD", "Memset")) for name in below_zero)
    in_file = sorted(
        digits_ns(event["dur"])
        for event in device_events(hta, golden.run)
        if event["name"] in below_zero
    )
    copies = golden.run.scan("copies", 0).filter(pl.col("name").is_in(below_zero)).collect()
    assert sorted(copies["dur_ns"]) == in_file
    assert in_file[0] > 0


def test_a_host_operator_with_a_stream_is_no_kernel(hta, golden_of):
    golden = golden_of("triton_example")
    (kernel,) = device_events(hta, golden.run)
    assert kernel["dur"] == "1.760"
    assert whole(golden.run)["compute_ns"].to_list() == [1760]
    assert figures(golden, 0)[1] == 94  # the operator that launched it


@pytest.mark.parametrize("name", ["cp_event_sync", "cp_event_sync_multi", "cp_simple_add"])
def test_a_synchronisation_is_no_kernel(hta, golden_of, name):
    golden = golden_of(name)
    spans = [(event["ts"], event["ts"] + event["dur"]) for event in device_events(hta, golden.run)]
    total = max(end for _, end in spans) - min(start for start, _ in spans)
    idle = total - hta.length(spans)
    part = whole(golden.run).row(0, named=True)
    assert (part["dur_ns"], part["idle_ns"]) == (total * 1000, idle * 1000)
    assert figures(golden, 0)[0] != idle


@pytest.mark.slow
@pytest.mark.parametrize("rank", range(3, 8))
def test_kernels_launched_before_the_trace_are_no_idle_time(hta, golden_of, rank):
    golden = golden_of("modded_nanogpt_8rank")
    assert 16 < figures(golden, rank)[4] < 19.1
    exact = hta.measured_us(golden.run, rank, Fraction)
    part = whole(golden.run, rank).row(0, named=True)
    assert part["idle_ns"] == exact["idle"] * 1000
    assert 0.024 < part["idle_ns"] / part["dur_ns"] < 0.028
    unlinked = activity(golden.run, rank).filter(pl.col("launch_start_ns").is_null()).collect()
    assert unlinked.height > 500


def test_two_devices_with_equal_streams_are_two_timelines(runs, tmp_path):
    kernels = [
        ("kernel", "gemm", start, 100, {"device": device, "stream": 7, "correlation": start})
        for device, start in ((0, 1000), (1, 1010), (0, 1200), (1, 1210))
    ]
    path = runs.kineto(tmp_path / "source", kernels)
    run = tracekit.convert(path, tmp_path / "run", engine="local:1")
    gap_ns = pl.col("start_ns") - pl.col("end_ns").shift(1).over("stream")
    waits_ns = activity(run, 0).sort("start_ns").select(gap_ns).collect().to_series()
    assert waits_ns.min() == -90_000  # by HTA's definition a wait of less than nothing
    assert whole(run)["idle_ns"].to_list() == [100_000, 100_000]
    assert length_ns(activity(run, 0)).collect().item() == 220_000  # together: idle for 90 µs


def test_a_kernel_that_ran_twice_is_no_kernel_of_twice_the_length(hta, golden_of):
    golden = golden_of("cp_simple_add")
    name = "ampere_gcgemm_64x64_nt"
    columns = ["sum (us)", "max (us)", "min (us)", "mean (us)"]
    by_default = golden.frame("get_gpu_kernel_breakdown_kernels").filter(pl.col("name") == name)
    assert by_default.select(columns).row(0) == (646, 646, 646, 646)
    in_file = [event["dur"] for event in device_events(hta, golden.run) if event["name"] == name]
    assert in_file == [323, 323]
    ours = kernel_totals(golden.run, 0).filter(pl.col("name") == name).collect()
    assert ours.select(pl.col("n_kernels", "total_ns").sum()).row(0) == (2, 646_000)


@pytest.mark.parametrize(
    ("path", "n_device", "n_listed"),
    [
        (f"{TRACELENS}/mi300/gaunernst_bert-small-uncased__1016001.json.gz", 61, 0),
        (f"{TRACELENS}/inference/vllm_decode_full/graph_execution.json.gz", 434, 0),
        (DECODE, 2267, 36),
    ],
    ids=["hip", "hip graph", "cuda graph"],
)
def test_a_launch_is_whatever_has_a_device_event(hta, converted, path, n_device, n_listed):
    run = converted(path)
    (rank,) = run.ranks
    calls = {
        event["args"]["correlation"]: event["name"]
        for event in hta.events_of(hta.source(run, rank))
        if event.get("cat") in CALLS and "correlation" in event["args"]
    }
    launched = [
        calls[event["args"]["correlation"]]
        for event in device_events(hta, run, rank)
        if event["args"].get("correlation") in calls
    ]
    assert len(launched) == n_device
    assert sum(name in hta.CALLS for name in launched) == n_listed
    ours = activity(run, rank).drop_nulls("launch_start_ns").collect()
    assert ours.height == n_device


@pytest.mark.parametrize("name", ["trace_filter", "trace_filter_last"])
def test_where_nobody_is_known_to_be_late_nobody_is_named(golden_of, name):
    golden = golden_of(name)
    assert golden.frame("get_potential_stragglers")["rank"].to_list() == [1]
    groups = golden.run.scan("collectives", 0).select("members", "sequence", "comms_id").collect()
    assert groups.null_count().row(0) == (groups.height,) * 3  # nothing pairs calls of two ranks
    assert stragglers(golden.run) == []


def test_kernels_of_todays_nccl_show_who_is_late(four_ranks):
    run = four_ranks("A")
    names = run.scan("kernels", 3).select("name").collect()["name"]
    assert names.str.starts_with("ncclDevKernel_").all()
    assert [found.ranks for found in stragglers(run)] == [(3,)]


def test_a_rank_holds_its_own_events_alone(hta, golden_of):
    golden = golden_of("trace_filter_last")
    for rank in golden.run.ranks:
        in_file = Counter(event["name"] for event in device_events(hta, golden.run, rank))
        ours = activity(golden.run, rank).select("name").collect()["name"]
        assert Counter(ours) == in_file


def test_a_full_queue_holds_1022_launches_so_a_limit_of_1024_is_never_reached(converted):
    run = converted(H100)
    overhead = run.scan("other_events", 0).filter(pl.col("name") == "Command Buffer Full")
    assert overhead.select(pl.len()).collect().item() > 700  # the driver says that it was full
    launched = activity(run, 0).filter(pl.col("stream") == 7).drop_nulls("launch_end_ns").collect()
    changes = pl.concat(
        [
            launched.select(at_ns="launch_end_ns", by=pl.lit(1)),
            launched.select(at_ns="end_ns", by=pl.lit(-1)),
        ]
    ).sort("at_ns", "by")
    assert changes["by"].cum_sum().max() == QUEUE == 1_022


def test_a_path_of_the_host_alone_is_said_to_rest_on_what_was_not_recorded(golden_of):
    # Without recorded synchronisations HTA's graph has no edge from the device back to the host,
    # and says that the job is bound by its host without a word about it.
    golden = golden_of("df_index_resolver")
    summary = golden.frame("critical_path_summary.rank1").rows_by_key("bound_by", unique=True)
    assert summary["cpu_bound"] == (100.0,)
    run = golden.run
    assert run.n_rows("syncs") == 0
    parts = whole(run, 1).row(0, named=True)
    assert parts["idle_ns"] < 0.5 * parts["dur_ns"]
    assert tracekit.replay(run, engine="local:1").replay.is_inferred
