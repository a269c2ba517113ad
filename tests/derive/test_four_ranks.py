"""The small traces of four ranks whose truth is written beside them (µs)."""

from __future__ import annotations

import polars as pl
import pytest

import tracekit
from tracekit.derive.breakdown import breakdown
from tracekit.derive.instances import instances
from tracekit.derive.lateness import late_calls
from tracekit.derive.waits import waits
from tracekit.findings import Severity, Status


def us(frame, column):
    return [None if value is None else value // 1000 for value in frame[column]]


def by_instance(run, column):
    """Values of a column by instance, in order of ranks, in µs."""
    rows = waits(run).drop_nulls("instance").collect()
    return [us(part, column) for part in rows.partition_by("instance", maintain_order=True)]


def test_a_waits_and_transfer_are_the_truth(four_ranks):
    run = four_ranks("A")
    assert by_instance(run, "wait_ns") == [[100, 90, 80, 0]] * 3
    assert by_instance(run, "transfer_ns") == [[50] * 4] * 3
    operations = instances(run).collect()["operation"].unique(maintain_order=True).to_list()
    assert operations == ["all_reduce", "all_gather", "reduce_scatter"]


def test_a_rank_3_is_late_by_85_us_against_the_median_rank(four_ranks):
    # starts +0, +10, +20, +100: the median is +15
    late = late_calls(four_ranks("A"))
    assert late["rank"].to_list() == [3, 3, 3]
    assert us(late, "late_ns") == [85, 85, 85]
    assert us(late, "caused_ns") == [270, 270, 270]  # 100 + 90 + 80
    assert us(late, "victim_ns") == [90, 90, 90]
    assert us(late, "next_ns") == [80, 80, 80]  # if rank 3 came with rank 2


@pytest.mark.parametrize("letter", ["B", "C", "D", "G", "H", "I", "J"])
def test_nobody_is_late_or_waits(four_ranks, letter):
    run = four_ranks(letter)
    assert late_calls(run).is_empty()
    waited = {wait for row in by_instance(run, "wait_ns") for wait in row}
    assert waited == {0}


def test_b_a_clock_that_is_ahead_pairs_all_five_collectives(four_ranks):
    rows = instances(four_ranks("B")).collect()
    starts = rows.partition_by("instance", maintain_order=True)
    assert [us(part, "start_ns") for part in starts] == [
        [at, at, at + 5000, at]
        for at in us(starts[0], "start_ns")[:1]
        for at in range(at, at + 5000, 1000)
    ]
    # constant offsets are taken out of the error
    assert {e for row in by_instance(four_ranks("B"), "error_ns") for e in row} == {0}


def test_c_a_window_that_opens_later_pairs_by_sequence(four_ranks):
    rows = instances(four_ranks("C")).collect()
    assert rows["match"].unique().to_list() == ["sequence"]
    sizes = rows.group_by("n_seen").len().sort("n_seen").rows()
    assert sizes == [(3, 3), (4, 20)]  # the first one without rank 1, five with all


def test_d_groups_of_two_sizes_stay_apart(four_ranks):
    rows = instances(four_ranks("D")).collect()
    found = rows.group_by("group", "n_expected").agg(
        pl.col("dur_ns").unique() // 1000, n=pl.col("instance").n_unique()
    )
    assert found.sort("group").rows() == [
        ("0 (4 ranks: 0–3)", 4, [80], 4),
        ("1 (2 ranks: 0–1)", 2, [20], 4),
        ("2 (2 ranks: 2–3)", 2, [20], 4),
    ]


def test_e_bytes_are_right_or_not_known(four_ranks):
    rows = waits(four_ranks("E")).collect()
    per_rank = rows.filter(pl.col("rank") < 2).select("rank", "operation", "bytes_in")
    assert per_rank.sort("rank", "operation").rows() == [
        (0, "all_reduce", 1 << 20),  # fp8: one byte an element
        (0, "all_reduce", 2 << 20),
        (0, "broadcast", 2 << 20),
        (0, "send", 2 << 20),
        (1, "all_reduce", 1 << 20),
        (1, "all_reduce", 2 << 20),
        (1, "broadcast", 2 << 20),
        (1, "recv", 2 << 20),
    ]
    can_leave_early = pl.col("operation").is_in(["broadcast", "send", "recv"])
    assert rows.filter(can_leave_early)["wait_ns"].null_count() == 8
    assert rows.filter(~can_leave_early)["wait_ns"].to_list() == [0] * 8


def test_e_a_send_pairs_with_its_receive(four_ranks):
    rows = instances(four_ranks("E")).collect()
    pairs = rows.filter(pl.col("operation").is_in(["send", "recv"]))
    by_pair = pairs.group_by("instance", maintain_order=True).agg("rank", "operation")
    assert by_pair.select("rank", "operation").rows() == [
        ([0, 1], ["send", "recv"]),
        ([2, 3], ["send", "recv"]),
    ]


def test_f_uneven_all_to_all_of_subgroups_is_matched_and_never_split(four_ranks):
    rows = waits(four_ranks("F")).collect()
    assert rows.select("rank", "instance", "operation", "has_even_splits").rows() == [
        (0, 0, "all_to_all", False),
        (1, 0, "all_to_all", True),
        (2, 1, "all_to_all", False),
        (3, 1, "all_to_all", True),
    ]
    assert rows["wait_ns"].null_count() == 4


def test_g_one_element_less_is_matched_all_the_same(four_ranks):
    rows = instances(four_ranks("G")).filter(pl.col("operation") == "all_gather").collect()
    assert rows["instance"].to_list() == [0] * 4
    assert rows["bytes_in"].to_list() == [2097152, 2097152, 2097152, 2097150]


def test_h_ranks_keep_their_numbers_without_rank_2(four_ranks):
    run = four_ranks("H")
    assert run.ranks == (0, 1, 3)
    assert run.manifest.missing_ranks == (2,)
    assert instances(run).collect().select("rank", "n_seen", "n_expected").rows() == [
        (0, 3, 4),
        (1, 3, 4),
        (3, 3, 4),
    ]


def test_h_what_is_left_of_a_call_is_not_called_transfer(four_ranks):
    # rank 2 may have come last: waiting is at least 0, and the rest cannot be told apart
    run = four_ranks("H")
    assert by_instance(run, "wait_ns") == [[0, 0, 0]]
    assert by_instance(run, "transfer_ns") == [[None, None, None]]
    parts = breakdown(run, 0).filter(pl.col("step").is_null()).collect().row(0, named=True)
    assert parts["exposed_transfer_ns"] == 0
    assert parts["unsplit_communication_ns"] == parts["exposed_communication_ns"] > 0


def test_i_sequence_numbers_join_streams_in_another_order(four_ranks):
    rows = instances(four_ranks("I")).collect()
    by_stream = rows.group_by("instance").agg(pl.col("stream").unique(), pl.len())
    assert by_stream.sort(pl.col("stream").list.first()).select("stream", "len").rows() == [
        ([20], 4),
        ([21], 4),
    ]


def test_j_two_groups_of_one_name_stay_apart(four_ranks):
    rows = instances(four_ranks("J")).collect()
    by_group = rows.group_by("group").agg(
        pl.col("rank").unique().sort(), pl.col("instance").n_unique()
    )
    assert by_group.sort("group").rows() == [
        ("tp (2 ranks: 0–1)", [0, 1], 3),
        ("tp (2 ranks: 2–3)", [2, 3], 3),
    ]


def stragglers(result):
    return [f for f in result.findings if f.id == "straggler-rank" and f.status is Status.FOUND]


def test_a_finding_names_rank_3_and_its_victims(four_ranks):
    (found,) = stragglers(tracekit.analyze(four_ranks("A"), engine="local:1"))
    assert found.ranks == (3,)
    assert found.scope.victims == (0, 1, 2)
    # 3 × 90 µs of a whole trace that is 2,150 µs on ranks 0–2 and 2,050 µs on rank 3
    step_us = (2150 + 2140 + 2130 + 2050) / 4
    assert found.measured.value == pytest.approx(270 / step_us)
    assert found.saving.per_step_ns.low == 240_000
    assert found.saving.per_step_ns.high == 270_000


@pytest.mark.parametrize("letter", "BCDEFGHIJ")
def test_no_finding_names_a_rank_or_is_more_than_a_note(four_ranks, letter):
    result = tracekit.analyze(four_ranks(letter), engine="local:1")
    assert stragglers(result) == []
    assert {f.severity for f in result.findings} <= {None, Severity.INFO}
    assert all(f.status is not Status.FAILED for f in result.findings)


def test_the_order_of_the_files_does_not_matter(traces):
    files = sorted((traces / "traces/collectives-4-ranks/A_truth").glob("*.json"))
    forwards, backwards = (
        tracekit.analyze(order, engine="local:1") for order in (files, files[::-1])
    )
    assert forwards.findings == backwards.findings
    assert forwards.whole == backwards.whole
