"""Who is late and what it costs: the rule of section 5, in µs."""

from __future__ import annotations

import pytest

from tracekit.derive.culprits import by_instance, ranked_culprits, with_culprit
from tracekit.derive.lateness import compared_calls, late_calls


def together(runs, *durations, start=0, compute=None):
    """One collective that all ranks leave at 1000; each stays in it as long as `durations` say."""
    traces = {rank: runs.Trace() for rank in range(len(durations))}
    for rank, dur in enumerate(durations):
        traces[rank].collective(start + 1000 - dur, dur, members=list(range(len(durations))))
        if compute:
            traces[rank].kernel(start + 1000 - compute, compute)
    return traces


def late(run, *columns):
    rows = late_calls(run)
    return [
        tuple(round(v / 1000, 6) if name.endswith("_ns") else v for name, v in row.items())
        for row in rows.select(columns).sort(columns[0]).iter_rows(named=True)
    ]


def test_the_last_rank_is_late_against_the_median(make_run, runs):
    run = make_run(together(runs, 150, 140, 130, 50))
    # median stay 135: rank 3 is 85 late; the others wait 100 + 90 + 80
    assert late(run, "rank", "late_ns", "caused_ns", "victim_ns", "next_ns") == [
        (3, 85, 270, 90, 80)
    ]


def test_a_tie_blames_nobody(make_run, runs):
    assert late_calls(make_run(together(runs, 50, 50, 50, 50))).is_empty()


def test_half_of_the_greatest_lateness_is_not_late_and_more_is(make_run, runs):
    # median 100; latenesses 80, 40 and 80, 42
    assert late(make_run(together(runs, 100, 100, 100, 60, 20)), "rank") == [(4,)]
    assert late(make_run(together(runs, 100, 100, 100, 58, 20)), "rank") == [(3,), (4,)]


def test_waiting_is_shared_among_the_late_in_proportion(make_run, runs):
    run = make_run(together(runs, 110, 110, 110, 50, 20))
    # late by 60 and 90; the other three wait 90 each for the last one
    assert late(run, "rank", "late_ns", "n_late", "caused_ns", "victim_ns") == [
        (3, 60, 2, pytest.approx(270 * 0.4), pytest.approx(90 * 0.4)),
        (4, 90, 2, pytest.approx(270 * 0.6), pytest.approx(90 * 0.6)),
    ]


def test_lateness_inside_the_error_blames_nobody(make_run, runs):
    for spread, n_late in ((40, 1), (50, 0)):
        traces = {rank: runs.Trace() for rank in range(3)}
        for number in range(3):
            for rank, trace in traces.items():
                dur = 50 if (number, rank) == (1, 2) else 100  # late by 50, once
                end = 1000 * number + 500 + (spread if (number, rank) == (1, 0) else 0)
                trace.collective(end - dur, dur, members=[0, 1, 2])
        assert late_calls(make_run(traces)).height == n_late


def test_waits_under_compute_cost_nothing(make_run, runs):
    # all compute for the last 130 µs: of the waits of 100, 90 and 80 only 20, 10 and 0 are exposed
    run = make_run(together(runs, 150, 140, 130, 50, compute=130))
    assert late(run, "rank", "caused_ns", "victim_ns", "next_ns") == [(3, 30, 10, 0)]


def test_a_late_call_belongs_to_the_late_ranks_step(make_run, runs):
    traces = together(runs, 150, 50)
    for trace in traces.values():
        trace.step(7, 0, 2000).kernel(800, 190, launched=10)
    assert late(make_run(traces), "rank", "step") == [(1, 7)]


def test_without_collectives_nobody_is_late(make_run, trace):
    assert late_calls(make_run(trace.kernel(0, 10))).is_empty()


def repeated(runs, *rows):
    """Collectives one after the other, of ranks that stay in them for `rows[k][rank]`."""
    traces = {rank: runs.Trace() for rank in range(len(rows[0]))}
    for number, durations in enumerate(rows):
        for rank, part in together(runs, *durations, start=2000 * number).items():
            for table, values in part.rows.items():
                traces[rank].rows[table] += values
    return traces


def culprits(run, n_steps=1):
    rows = with_culprit(late_calls(run))
    members = compared_calls(run).select("rank", "group")
    return ranked_culprits(rows, by_instance(rows), members, n_steps=n_steps, min_lead_share=0.25)


def test_the_victim_that_waits_least_says_what_is_sure(make_run, runs):
    # rank 0 is late by 90 in the group it shares with rank 1, and by 40 in the one with rank 2
    traces = {rank: runs.Trace() for rank in range(3)}
    for number in range(4):
        at = 1000 * number
        for rank, start in ((0, 90), (1, 0)):
            traces[rank].collective(at + start, 100 - start, members=[0, 1])
        for rank, start in ((0, 540), (2, 500)):
            traces[rank].collective(at + start, 550 - start, members=[0, 2])
    row = culprits(make_run(traces), n_steps=4).row(0, named=True)
    assert row["ranks"] == [0]
    assert (row["low_ns"], row["high_ns"]) == (40_000, 130_000)


def test_ranks_late_together_are_one_culprit_that_saves_what_both_cost(make_run, runs):
    # ranks 4 and 5 of one host are 80 late each time; median stay is 100
    found = culprits(make_run(repeated(runs, *[(100, 100, 100, 100, 20, 20)] * 4)))
    assert found["ranks"].to_list() == [[4, 5]]
    row = found.row(0, named=True)
    assert (row["n_late"], row["late_ns"]) == (4, 4 * 80_000)
    assert (row["low_ns"], row["high_ns"]) == (4 * 80_000, 4 * 80_000)
    assert row["caused_share"] == 1


def test_ranks_late_in_turns_are_two_culprits(make_run, runs):
    first, second = (100, 100, 100, 100, 20, 100), (100, 100, 100, 100, 100, 20)
    found = culprits(make_run(repeated(runs, first, second, first, second)))
    assert sorted(found["ranks"].to_list()) == [[4], [5]]
    assert found["low_ns"].to_list() == [2 * 80_000] * 2


def test_a_culprit_alone_saves_nothing_where_another_is_late_too(make_run, runs):
    # rank 5 is late in all four, rank 4 in one of them
    rows = [(100, 100, 100, 100, 20, 20)] + [(100, 100, 100, 100, 100, 20)] * 3
    found = culprits(make_run(repeated(runs, *rows)))
    assert found["ranks"].to_list() == [[5], [4]]
    assert found["low_ns"].to_list() == [3 * 80_000, 0]
