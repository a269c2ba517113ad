"""Which calls are one collective: by identifier, sequence number, order, shifted windows (µs)."""

from __future__ import annotations

import random
from dataclasses import replace

import polars as pl
import pytest

import tracekit
from tracekit.derive.instances import instances
from tracekit.derive.waits import waits
from tracekit.sample_traces.simulator.job import Job
from tracekit.sample_traces.simulator.recorded import recorded


def ends_us(seed, n_calls):
    """Ends of collectives at irregular distances, as in a real run."""
    generator = random.Random(seed)
    at, found = 0, []
    for _ in range(n_calls):
        at += generator.randrange(200, 2000)
        found.append(at)
    return found


def ranks(runs, ends, *, n_ranks=4, first=None, clock=None, late=None, dur=50, **values):
    """Every rank takes part in all collectives, from number `first[rank]`, on its own clock."""
    traces = {rank: runs.Trace() for rank in range(n_ranks)}
    for rank, trace in traces.items():
        for number, end in enumerate(ends):
            if number < (first or {}).get(rank, 0):
                continue
            own = dur - (late or {}).get(rank, 0)
            at = end + (clock or {}).get(rank, 0) - own
            trace.collective(at, own, members=values.get("members", list(range(n_ranks))))
    return traces


def shapes(run):
    """Ranks of each instance."""
    rows = instances(run).drop_nulls("instance").collect()
    return rows.group_by("instance").agg("rank").sort("instance")["rank"].to_list()


def test_identifiers_join_whatever_the_order(make_run, runs):
    traces = {rank: runs.Trace() for rank in range(2)}
    for rank, order in enumerate(([11, 12, 13], [13, 11, 12])):
        for place, number in enumerate(order):
            traces[rank].collective(100 * place, 10 + number, comms_id=number, members=[0, 1])
    rows = instances(make_run(traces)).collect()
    assert rows["match"].unique().to_list() == ["comms id"]
    by_instance = rows.group_by("instance").agg(pl.col("dur_ns").unique(), pl.col("rank"))
    assert sorted(by_instance["dur_ns"].to_list()) == [[21_000], [22_000], [23_000]]


def test_a_sequence_number_seen_twice_on_a_rank_matches_nothing(make_run, runs):
    traces = {rank: runs.Trace() for rank in range(2)}
    for trace in traces.values():
        trace.collective(0, 10, sequence=1, members=[0, 1])
    traces[0].collective(50, 10, sequence=1, members=[0, 1])
    rows = instances(make_run(traces)).filter(pl.col("rank") == 0).collect()
    assert rows["match"].to_list() == ["not matched", "not matched"]


def test_a_call_that_no_other_rank_holds_is_not_matched(make_run, runs):
    traces = {0: runs.Trace().collective(0, 10), 1: runs.Trace().kernel(0, 10)}
    row = instances(make_run(traces)).collect().row(0, named=True)
    assert (row["instance"], row["match"], row["n_seen"]) == (None, "not matched", 1)


@pytest.mark.parametrize("shift", [1, 3, 20])
def test_a_window_that_opens_later_is_shifted_and_nobody_is_late(make_run, runs, shift):
    run = make_run(ranks(runs, ends_us(1, 60), first={1: shift}))
    assert shapes(run) == [[0, 2, 3]] * shift + [[0, 1, 2, 3]] * (60 - shift)
    assert waits(run).collect()["wait_ns"].max() == 0


def test_a_shifted_window_is_found_under_a_clock_that_is_12_seconds_off(make_run, runs):
    traces = ranks(runs, ends_us(2, 60), first={2: 4}, clock={2: 12_000_000})
    assert shapes(make_run(traces)) == [[0, 1, 3]] * 4 + [[0, 1, 2, 3]] * 56


def test_evenly_repeated_calls_pair_where_ends_coincide(make_run, runs):
    run = make_run(ranks(runs, range(1000, 21000, 1000), first={1: 2}))
    assert shapes(run) == [[0, 2, 3]] * 2 + [[0, 1, 2, 3]] * 18


def test_evenly_repeated_calls_on_another_clock_pair_unshifted(make_run, runs):
    run = make_run(ranks(runs, range(1000, 21000, 1000), clock={1: 5300}))
    assert shapes(run) == [[0, 1, 2, 3]] * 20


def test_a_rank_that_is_late_by_a_step_is_not_shifted(make_run, runs):
    run = make_run(ranks(runs, ends_us(3, 40), late={3: 45}))
    assert shapes(run) == [[0, 1, 2, 3]] * 40
    waited = waits(run).group_by("rank").agg(pl.col("wait_ns").unique()).sort("rank").collect()
    assert waited["wait_ns"].to_list() == [[45_000]] * 3 + [[0]]


@pytest.mark.parametrize("n_calls", [2, 3, 4])
def test_a_few_uneven_calls_are_not_shifted_until_one_pair_fits(make_run, runs, n_calls):
    run = make_run(ranks(runs, ends_us(3, n_calls), n_ranks=2, late={1: 45}, clock={1: 700}))
    assert shapes(run) == [[0, 1]] * n_calls


def test_groups_that_nothing_names_are_told_by_their_common_ends(make_run, runs):
    first, second = ends_us(4, 30), ends_us(5, 30)
    pairs = ranks(runs, first, n_ranks=2, members=None) | {
        rank + 2: trace for rank, trace in ranks(runs, second, n_ranks=2, members=None).items()
    }
    for trace in pairs.values():
        for row in trace.rows["collectives"]:
            row["group"] = None
    found = shapes(make_run(pairs))
    assert sorted(map(tuple, found)) == [(0, 1)] * 30 + [(2, 3)] * 30


def test_ranks_that_share_no_constant_distance_are_not_one_group(make_run, runs):
    # two ranks of a large job, of which neither the group nor a common collective is recorded
    traces = ranks(runs, ends_us(6, 30), n_ranks=1, members=None)
    traces |= {1: ranks(runs, ends_us(7, 30), n_ranks=1, members=None)[0]}
    for trace in traces.values():
        for row in trace.rows["collectives"]:
            row["group"] = None
    assert shapes(make_run(traces)) == []


def test_a_receive_pairs_with_the_send_of_its_peer_in_both_directions(make_run, runs):
    first, second = runs.Trace(), runs.Trace()
    for at in (0, 100, 200):
        first.collective(at, 10, "send", destination_rank=1, members=None)
        first.collective(at + 50, 10, "recv", source_rank=1, members=None)
        second.collective(at, 10, "recv", source_rank=0, members=None)
        second.collective(at + 50, 10, "send", destination_rank=0, members=None)
    rows = instances(make_run({0: first, 1: second})).collect()
    pairs = rows.group_by("instance").agg("operation", "start_ns", "n_expected").sort("instance")
    assert pairs["operation"].to_list() == [["send", "recv"], ["recv", "send"]] * 3
    assert all(a == b for a, b in pairs["start_ns"])
    assert pairs["n_expected"].to_list() == [[2, 2]] * 6


def test_a_rank_whose_clock_is_off_changes_no_wait(make_run, runs):
    plain = make_run(ranks(runs, ends_us(8, 40), late={2: 30}))
    moved = make_run(ranks(runs, ends_us(8, 40), late={2: 30}, clock={1: -12_000_000}))
    columns = ("rank", "wait_ns", "late_ns", "transfer_ns", "error_ns")
    first, second = (
        waits(run).sort("rank", "start_ns").select(columns).collect() for run in (plain, moved)
    )
    assert first.equals(second)


def test_the_order_in_which_ranks_are_given_does_not_matter(make_run, runs):
    traces = ranks(runs, ends_us(9, 30), first={0: 2, 3: 5}, late={1: 20})
    forwards = waits(make_run(traces)).collect()
    backwards = waits(make_run(dict(reversed(traces.items())))).collect()
    assert forwards.equals(backwards)


def test_bytes_that_differ_much_are_not_compared(make_run, runs):
    traces = {0: runs.Trace(), 1: runs.Trace()}
    for rank, trace in traces.items():
        trace.collective(0, 10 + 20 * rank, members=[0, 1], bytes_in=1000 + 500 * rank)
    rows = waits(make_run(traces)).collect()
    assert rows["instance"].to_list() == [0, 0]
    assert rows["wait_ns"].to_list() == [None, None]


def test_members_that_called_different_operations_are_not_compared(make_run, runs):
    traces = {0: runs.Trace(), 1: runs.Trace()}
    for trace, operation in zip(traces.values(), ("all_reduce", "all_gather"), strict=True):
        trace.collective(0, 10, operation, members=[0, 1], sequence=1)
    assert waits(make_run(traces)).collect()["wait_ns"].to_list() == [None, None]


def test_the_error_is_the_spread_of_the_ends_without_constant_offsets(make_run, runs):
    traces = {0: runs.Trace(), 1: runs.Trace()}
    for number, apart in enumerate((5000, 5000, 5012)):  # rank 1's clock is 5 ms ahead
        traces[0].collective(1000 * number, 50, members=[0, 1])
        traces[1].collective(1000 * number + apart, 50, members=[0, 1])
    errors = waits(make_run(traces)).collect()["error_ns"].to_list()
    # each rank's offset from the middle of the ends is ± 2,500 µs; the last pair is 12 µs off it
    assert errors == [0, 0, 0, 0, 12_000, 12_000]


def test_no_collective_gives_an_empty_table(make_run, trace):
    assert waits(make_run(trace.kernel(0, 10))).collect().is_empty()


@pytest.mark.slow
def test_eight_ranks_with_4000_collectives_each_are_matched(make_run, runs):
    # a join that is quadratic in instances would not end within the patience of a reader
    traces = ranks(runs, ends_us(10, 4000), n_ranks=8, first={3: 7}, late={5: 20})
    rows = instances(make_run(traces)).collect()
    assert rows["instance"].n_unique() == 4000
    assert rows.filter(pl.col("n_seen") == 8).height == 8 * 3993


def test_stages_in_step_with_each_other_are_told_apart_without_metadata(tmp_path):
    # Two stages of two data ranks, clocks 10 s apart: their calls keep a distance to some 10 µs.
    job = Job(n_dp=2, n_pp=2, n_micro_batches=4, n_layers=4, n_steps=4, n_buckets=2, seed=11)
    job = replace(job, forward_ns=500_000, backward_ns=1_000_000)
    offset_ns = {rank: rank * 10_000_000_000 for rank in range(4)}
    recorded(job, tmp_path, has_metadata=False, offset_ns=offset_ns)
    tracekit.convert(tmp_path, tmp_path / "run")
    found = instances(tracekit.open_run(tmp_path / "run")).filter(
        pl.col("name").str.contains("AllReduce") & pl.col("instance").is_not_null()
    )
    members = found.group_by("instance").agg(pl.col("rank").sort()).collect()["rank"]
    assert sorted(members.to_list()) == [[0, 1]] * 8 + [[2, 3]] * 8
