"""Bytes and bandwidth of collectives: as nccl-tests count them, over the transfer alone."""

from __future__ import annotations

import pytest

from tracekit.derive.traffic import traffic

LATE_US = 40


def two_ranks(runs, operation, **values):
    """A collective of 100 µs that rank 1 enters 40 µs after rank 0."""
    traces = {0: runs.Trace(), 1: runs.Trace()}
    described = {"members": [0, 1], "sequence": 1} | values
    traces[0].collective(1000, 100 + LATE_US, operation, **described)
    traces[1].collective(1000 + LATE_US, 100, operation, **described)
    return traces


def only(run):
    (row,) = traffic(run).collect().rows(named=True)
    return row


@pytest.mark.parametrize(
    ("operation", "n_in", "n_out", "total", "factor"),
    [
        ("all_reduce", 8_000, 8_000, 8_000, 1.0),  # 2 (n − 1) / n
        ("all_gather", 4_000, 8_000, 8_000, 0.5),
        ("all_gather", 4_000, None, 8_000, 0.5),
        ("reduce_scatter", 8_000, 4_000, 8_000, 0.5),
        ("reduce_scatter", None, 4_000, 8_000, 0.5),
        ("all_to_all", 8_000, 8_000, 8_000, 0.5),
    ],
)
def test_bytes_and_bus_bandwidth_are_those_of_nccl_tests(
    make_run, runs, operation, n_in, n_out, total, factor
):
    row = only(make_run(two_ranks(runs, operation, bytes_in=n_in, bytes_out=n_out)))
    assert (row["size_bytes"], row["transfer_ns"]) == (total, 100_000)  # no waiting in it
    assert row["algbw_gb_s"] == pytest.approx(total / 100_000)
    assert row["busbw_gb_s"] == pytest.approx(factor * total / 100_000)
    assert not row["is_bound"]


def test_an_uneven_all_to_all_counts_the_most_that_a_rank_sends_or_gets(make_run, runs):
    traces = {0: runs.Trace(), 1: runs.Trace()}
    splits = {"members": [0, 1], "sequence": 1, "splits_in": [1, 3]}
    traces[0].collective(0, 100, "all_to_all", bytes_in=4_000, bytes_out=2_000, **splits)
    traces[1].collective(0, 100, "all_to_all", bytes_in=4_000, bytes_out=6_000, **splits)
    row = only(make_run(traces))
    assert row["size_bytes"] == 6_000
    assert row["transfer_ns"] is None  # a rank may leave early, and no clock says when all were in


def test_a_broadcast_without_a_clock_has_bytes_and_no_bandwidth(make_run, runs):
    row = only(make_run(two_ranks(runs, "broadcast", bytes_in=8_000)))
    assert (row["size_bytes"], row["transfer_ns"], row["busbw_gb_s"]) == (8_000, None, None)


def test_where_a_member_is_missing_the_transfer_is_only_bounded(make_run, runs):
    run = make_run(two_ranks(runs, "all_reduce", members=[0, 1, 2]), n_missing=1)
    row = only(run)
    assert (row["is_bound"], row["n_members"], row["n_seen"]) == (True, 3, 2)
    assert row["transfer_ns"] == 100_000


def test_a_call_of_one_rank_is_its_own(make_run, runs):
    trace = runs.Trace().collective(0, 100, members=[0, 1]).collective(200, 100, members=[0, 1])
    rows = traffic(make_run(trace, n_missing=1)).collect()
    assert rows["instance"].to_list() == [None, None]
    assert rows["is_bound"].to_list() == [True, True]


def test_of_a_group_that_no_trace_names_all_ranks_are_its_members(make_run, runs):
    run = make_run(two_ranks(runs, "all_reduce", group=None, members=None, comms_id=7))
    assert only(run)["n_members"] == 2


def test_the_truth_of_four_ranks(four_ranks):
    rows = traffic(four_ranks("A")).collect()
    assert rows["transfer_ns"].to_list() == [50_000] * 3
    assert dict(rows.select("operation", "busbw_gb_s").iter_rows()) == {
        "all_reduce": pytest.approx(2_097_152 * 1.5 / 50_000),
        "all_gather": pytest.approx(8_388_608 * 0.75 / 50_000),
        "reduce_scatter": pytest.approx(8_388_608 * 0.75 / 50_000),
    }
