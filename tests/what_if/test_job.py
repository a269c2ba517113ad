"""The graph of traces of ranks, on runs small enough to work the times out by hand (µs)."""

from __future__ import annotations

import polars as pl
import pytest

from tracekit.what_if.changes import unchanged
from tracekit.what_if.critical_path import critical_path, slack_ns
from tracekit.what_if.efficiency_tree import efficiency_tree
from tracekit.what_if.job import job, made
from tracekit.what_if.peers import device_like_peers, host_like_peers
from tracekit.what_if.questions import removed, scaled
from tracekit.what_if.slowdowns import slowdowns
from tracekit.what_if.windows import replayed_windows

STEP = 1000


def stepped(runs, body, *, n_steps=4, n_ranks=1):
    """Traces of ranks whose step `body(trace, rank, at)` writes, `STEP` µs apart."""
    traces = {rank: runs.Trace() for rank in range(n_ranks)}
    for number in range(n_steps):
        for rank, trace in traces.items():
            trace.step(number, STEP * number, STEP)
            body(trace, rank, STEP * number)
    return traces


def two_kernels(trace, _rank, at):
    """Two kernels back to back, launched at once; then the host waits for them."""
    trace.kernel(at + 10, 300, "gemm", launched=(at + 4, 4))
    trace.kernel(at + 312, 500, "softmax", launched=(at + 8, 4))
    trace.call(at + 12, 802, "cudaStreamSynchronize", role="sync")  # returns 2 µs late


def step_us(replay, changes=None):
    (ns,) = replay.mean_step_ns([(changes or unchanged(replay)).scenario])
    return ns / 1000


def test_the_step_is_replayed_from_durations_and_the_hosts_time(make_run, runs):
    replay = job(make_run(stepped(runs, two_kernels)))
    assert replay.measured_ns == 1_000_000
    assert step_us(replay) == pytest.approx(1000, abs=1)


def test_a_kernel_twice_as_fast_ends_the_wait_sooner(make_run, runs):
    replay = job(make_run(stepped(runs, two_kernels)))
    faster = scaled(unchanged(replay), "kernel:gemm=0.5")
    assert step_us(replay, faster) == pytest.approx(850, abs=1)


def test_the_path_is_the_kernels_and_what_the_host_does_after_its_wait(make_run, runs):
    replay = job(make_run(stepped(runs, two_kernels)))
    parts = critical_path(replay)
    by_class = dict(parts.group_by("class").agg(pl.col("on_path_ns").sum() / 2000).iter_rows())
    # two averaged steps of 800 µs of kernels; 186 µs from the return to the next step's launch
    assert by_class["compute"] == pytest.approx(800, abs=1)
    assert by_class["host"] == pytest.approx(194, abs=3)
    assert parts["on_path_ns"].sum() / 2000 == pytest.approx(1000, abs=2)


def test_without_its_wait_the_host_runs_ahead(make_run, runs):
    replay = job(make_run(stepped(runs, two_kernels)))
    changes = removed(unchanged(replay), "sync", None)
    # 300 and 500 µs of kernels, each 2 µs after the one before
    assert step_us(replay, changes) == pytest.approx(804, abs=1)


def side_stream(trace, _rank, at):
    """A short kernel beside a long one; what follows waits for both."""
    trace.kernel(at + 10, 600, "gemm", launched=(at + 1, 2))
    trace.kernel(at + 12, 100, "softmax", launched=(at + 3, 2), stream=9)
    trace.call(at + 5, 1, "cudaStreamWaitEvent", role="stream-wait")
    trace.kernel(at + 612, 200, "relu", launched=(at + 7, 2), stream=9)
    trace.call(at + 10, 804, "cudaDeviceSynchronize", role="sync")


def test_a_stream_that_was_told_to_wait_waits_in_the_replay_too(make_run, runs):
    run = make_run(stepped(runs, side_stream))
    replay = job(run)
    assert replay.is_inferred
    slower = scaled(unchanged(replay), "kernel:gemm=1.5")
    assert step_us(replay, slower) == pytest.approx(step_us(replay) + 300, abs=1)
    blind = made(run, has_stream_waits=False)
    assert step_us(blind) == pytest.approx(step_us(replay) - 200, abs=3)


def test_a_recorded_wait_is_not_inferred(make_run, runs):
    def body(trace, rank, at):
        side_stream(trace, rank, at)
        place = {"device": 0, "stream": 9, "correlation": None, "event_id": 1}
        trace.add(
            "syncs",
            at + 5,
            0,
            kind="Stream Wait Event",
            wait_on_stream=7,
            wait_on_correlation=None,
            source="recorded",
            **place,
        )

    replay = job(make_run(stepped(runs, body)))
    assert not replay.is_inferred
    assert step_us(replay) == pytest.approx(1000, abs=3)


def gathered(trace, _rank, at):
    """A collective after a kernel; what follows an operator that waits for it needs it."""
    trace.kernel(at + 10, 100, "gemm", launched=(at + 1, 2))
    trace.collective(at + 112, 400, launched=(at + 3, 2), members=None)
    trace.kernel(at + 114, 100, "softmax", launched=(at + 5, 2))
    trace.op(at + 8, 1, "_c10d_functional::wait_tensor")
    trace.kernel(at + 514, 100, "relu", launched=(at + 10, 2))
    trace.call(at + 13, 603, "cudaDeviceSynchronize", role="sync")


def test_without_any_call_what_waits_for_a_collective_is_told_by_the_operator(make_run, runs):
    replay = job(make_run(stepped(runs, gathered)))
    assert replay.is_inferred
    slower = scaled(unchanged(replay), "transfer=1.5")
    assert step_us(replay, slower) == pytest.approx(step_us(replay) + 200, abs=2)


def test_a_collective_waits_for_what_was_launched_before_it(make_run, runs):
    replay = job(make_run(stepped(runs, gathered)))
    slower = scaled(unchanged(replay), "kernel:gemm=3")
    assert step_us(replay, slower) == pytest.approx(step_us(replay) + 200, abs=2)


def test_slack_is_what_may_take_longer_for_free(make_run, runs):
    replay = job(make_run(stepped(runs, side_stream)))
    slack = replay.work.with_columns(slack_us=pl.Series(slack_ns(replay)) / 1000)
    in_step = slack.filter((pl.col("step") == 1) & (pl.col("class") == "compute"))
    by_name = dict(in_step.select("name", "slack_us").iter_rows())
    assert by_name["gemm"] == pytest.approx(0, abs=1)
    assert by_name["relu"] == pytest.approx(0, abs=1)
    assert by_name["softmax"] == pytest.approx(500, abs=5)  # it could end when the long one does


def reduced(trace, rank, at):
    """Rank 1 computes 200 µs longer; both then reduce for 100 µs, wait, and go on."""
    busy = 400 if rank == 0 else 600
    trace.kernel(at + 10, busy, "gemm", launched=(at + 1, 2))
    members = [0, 1]
    entered = at + 12 + busy
    leaves = at + 712
    trace.call(at + 4, 1, "cudaStreamWaitEvent", role="stream-wait")
    trace.collective(entered, leaves - entered, launched=(at + 5, 2), members=members)
    trace.call(at + 8, leaves + 2 - at - 8, "cudaStreamSynchronize", role="sync")


def test_members_of_a_collective_begin_together(make_run, runs):
    replay = job(make_run(stepped(runs, reduced, n_ranks=2, n_steps=12)))
    assert step_us(replay) == pytest.approx(1000, abs=3)
    transfers = replay.work.filter(pl.col("class") == "communication")["own_ns"].unique()
    assert transfers.to_list() == [pytest.approx(100_000, abs=10)]


def test_a_rank_made_like_its_peer_lets_both_go_on(make_run, runs):
    replay = job(make_run(stepped(runs, reduced, n_ranks=2, n_steps=12)))
    alike = device_like_peers(unchanged(replay), [1])
    assert step_us(replay, alike) == pytest.approx(800, abs=3)
    # the other way round nothing is gained: peers that take longer are no cure
    assert step_us(replay, device_like_peers(unchanged(replay), [0])) == pytest.approx(1000, abs=3)


def held_up(trace, rank, at):
    """The host of rank 1 takes 300 µs before it launches."""
    late = 300 if rank == 1 else 0
    trace.kernel(at + 10 + late, 200, "gemm", launched=(at + 1 + late, 2))
    trace.call(at + 4 + late, 1, "cudaStreamWaitEvent", role="stream-wait")
    trace.collective(at + 212 + late, 400 - late, launched=(at + 5 + late, 2), members=[0, 1])
    trace.call(at + 8 + late, 606 - late, "cudaStreamSynchronize", role="sync")


def test_a_host_made_like_its_peer_launches_when_that_does(make_run, runs):
    run = make_run(stepped(runs, held_up, n_ranks=2, n_steps=12))
    replay = job(run)
    assert step_us(replay) == pytest.approx(1000, abs=3)
    alike = host_like_peers(unchanged(replay), run, [1])
    assert step_us(replay, alike) == pytest.approx(700, abs=3)


def test_the_tree_multiplies_to_the_parallel_efficiency_and_its_bars_to_the_step(make_run, runs):
    replay = job(make_run(stepped(runs, reduced, n_ranks=2, n_steps=12)))
    tree = efficiency_tree(replay, 500_000.0, 600_000.0)
    product = (
        tree.load_balance_share
        * tree.serialization_share
        * tree.orchestration_share
        * tree.transfer_share
    )
    assert product == pytest.approx(500_000 / replay.step_ns, abs=1e-9)
    bars = (
        tree.mean_compute_ns
        + tree.imbalance_ns
        + tree.serialization_ns
        + tree.orchestration_ns
        + tree.transfer_ns
    )
    assert bars == pytest.approx(replay.step_ns, abs=1e-3)
    assert tree.transfer_ns == pytest.approx(100_000, abs=1000)
    assert tree.orchestration_ns == pytest.approx(290_000, abs=3000)  # the host's time on the path


def test_without_compute_there_is_no_tree(make_run, runs):
    replay = job(make_run(stepped(runs, two_kernels)))
    assert efficiency_tree(replay, 0.0, 0.0) is None


def test_a_run_without_a_device_is_not_replayed(make_run, runs):
    def body(trace, _rank, at):
        trace.op(at, 500, "aten::mm")

    assert job(make_run(stepped(runs, body))) is None


def test_of_a_long_trace_the_first_steps_are_replayed(make_run, runs, monkeypatch):
    monkeypatch.setattr("tracekit.what_if.windows.MAX_PER_RANK", 7)  # of 24: about three steps
    replay = job(make_run(stepped(runs, two_kernels, n_steps=12)))
    assert replay.steps["step"].to_list() == [1, 2]
    assert replay.work.filter(pl.col("class") == "compute").height <= 8
    assert step_us(replay) == pytest.approx(1000, abs=3)


def test_of_long_traces_the_same_steps_are_replayed_whatever_the_clocks(
    make_run, runs, monkeypatch
):
    monkeypatch.setattr("tracekit.what_if.windows.MAX_PER_RANK", 7)
    traces = {0: runs.Trace(), 1: runs.Trace()}
    for rank, trace in traces.items():
        for number in range(12):
            at = STEP * number + 50_000 * rank  # µs: the second clock is ahead by four recordings
            trace.step(number, at, STEP)
            two_kernels(trace, rank, at)
    windows = replayed_windows(make_run(traces)).filter("is_averaged")
    assert windows.group_by("rank").agg(pl.col("step").unique().sort()).sort("rank").rows() == [
        (0, [1, 2]),
        (1, [1, 2]),
    ]


def test_steps_that_are_cut_off_say_nothing_of_the_usual_time(make_run, runs):
    def longer_at_first(trace, _rank, at):
        trace.kernel(at + 10, 900 if at == 0 else 300, "gemm", launched=(at + 4, 4))
        trace.call(at + 12, 899 if at == 0 else 299, "cudaStreamSynchronize", role="sync")

    replay = job(make_run(stepped(runs, longer_at_first)))
    assert slowdowns(replay).slowdown == pytest.approx(1)


def test_calls_that_wait_for_events_left_out_take_no_time_of_their_own(make_run, runs, monkeypatch):
    def waited_for_twice(trace, _rank, at):
        trace.kernel(at + 10, 100, "gemm", launched=(at + 4, 4))
        trace.call(at + 12, 100, "cudaStreamSynchronize", role="sync")
        trace.kernel(at + 120, 800, "softmax", launched=(at + 114, 4))
        trace.call(at + 122, 800, "cudaStreamSynchronize", role="sync")

    monkeypatch.setattr("tracekit.what_if.windows.MAX_PER_RANK", 6)
    replay = job(make_run(stepped(runs, waited_for_twice, n_steps=12)))
    assert replay.steps["step"].n_unique() == 2
    assert replay.error < 0.01
