"""Communication by group and operation, with what compute hides of it."""

from __future__ import annotations

import pytest

from tracekit.derive.averages import averaged
from tracekit.derive.call_exposure import call_exposure
from tracekit.derive.communication import communication
from tracekit.traffic import Bound

STEP = 1000


def stepped(runs, body, *, n_steps=4, n_ranks=2):
    traces = {rank: runs.Trace() for rank in range(n_ranks)}
    for number in range(n_steps):
        for rank, trace in traces.items():
            trace.step(number, STEP * number, STEP)
            body(trace, rank, STEP * number, number)
    return traces


def half_hidden(trace, rank, at, number):
    """Rank 1 enters 40 µs late; of the 100 µs of transfer compute covers 60."""
    late = 40 * rank
    place = {"members": [0, 1], "sequence": number, "bytes_in": 8_000}
    trace.kernel(at, 300, launched=at)
    trace.collective(at + 400 + late, 140 - late, launched=at + 2, **place)
    trace.kernel(at + 480, 420, launched=at + 4)


def test_each_call_is_split_into_waiting_transfer_and_what_of_both_shows(make_run, runs):
    run = make_run(stepped(runs, half_hidden))
    rows = averaged(run, call_exposure).sort("rank", "step")
    assert rows.columns[0] == "rank"
    first = rows.filter(rank=0).row(0, named=True)
    assert [first[name] for name in ("wait_ns", "exposed_wait_ns")] == [40_000, 40_000]
    assert [first[name] for name in ("transfer_ns", "exposed_transfer_ns")] == [100_000, 40_000]
    late = rows.filter(rank=1).row(0, named=True)
    assert [late[name] for name in ("wait_ns", "exposed_wait_ns")] == [0, 0]


def test_a_mean_step_of_a_rank(make_run, runs):
    (found,) = communication(make_run(stepped(runs, half_hidden))).operations
    assert (found.group, found.operation, found.n_calls) == ("0 (2 ranks: 0–1)", "all_reduce", 4)
    assert found.step_ns == 120_000  # 140 and 100
    assert found.exposed_wait_ns == 20_000  # 40 and 0
    assert found.exposed_transfer_ns == 40_000
    assert found.hidden_ns == 60_000
    assert found.exposed_unsplit_ns == 0
    assert found.busbw_gb_s == pytest.approx(0.08)
    assert (found.excess_ns, found.p50_ns, found.p99_ns) == (0, 100_000, 100_000)
    assert found.total_bytes == 32_000


def test_sizes_tell_what_binds(make_run, runs):
    def body(trace, rank, at, number):
        for i, nbytes in enumerate((1_000, 1_000, 10_000, 100_000)):
            dur = 20 + nbytes / 1000  # 20 µs and 1 byte per ns
            place = {"members": [0, 1], "sequence": 4 * number + i, "bytes_in": nbytes}
            trace.collective(at + 150 * i + rank, dur, **place)

    (found,) = communication(make_run(stepped(runs, body))).operations
    assert found.bound is Bound.LATENCY  # the median call is 5,500 bytes
    assert found.fit.latency_ns == pytest.approx(20_000)
    assert found.fit.busbw_gb_s == pytest.approx(1.0)
    assert found.fit.half_bytes == pytest.approx(20_000)
    assert [size.size_bytes for size in found.sizes] == [1_000, 10_000, 100_000]
    assert [size.n_calls for size in found.sizes] == [8, 4, 4]


def test_calls_whose_ranks_are_missing_count_where_there_are_no_others(make_run, runs):
    def body(trace, rank, at, number):
        place = {"members": [0, 1], "sequence": number, "bytes_in": 8_000}
        if rank == 0 or number < 2:
            trace.collective(at + 10, 100 if number < 2 else 500, **place)

    (found,) = communication(make_run(stepped(runs, body))).operations
    assert (found.n_calls, found.is_bound, found.p99_ns) == (4, False, 100_000)
    (alone,) = communication(
        make_run(stepped(runs, body, n_ranks=1), world_size=2, n_missing=1)
    ).operations
    assert alone.is_bound


def test_a_run_without_communication_has_none(make_run, runs):
    assert communication(make_run(runs.Trace().kernel(0, 10))) is None
