"""The mean step: averages that can be checked by hand, and which ranks are shown of many."""

from __future__ import annotations

from dataclasses import replace

from tracekit.reports.mean_step import (
    MAX_ROWS,
    Basis,
    basis,
    faulty_ranks,
    job_mean,
    mean_steps,
    own_ns,
    shown_rows,
)


def test_the_mean_is_taken_over_averaged_steps(straggler):
    # Step 0 is not averaged: making it ten times as long changes nothing.
    rows = tuple(
        replace(row, dur_ns=row.dur_ns * 10) if row.step == 0 else row
        for row in straggler.breakdown
    )
    means = mean_steps(replace(straggler, breakdown=rows))
    assert [mean.rank for mean in means] == list(range(8))
    assert {mean.dur_ns for mean in means} == {100e6}
    assert {mean.n_steps for mean in means} == {2}


def test_the_parts_add_up_to_the_step(straggler):
    for mean in mean_steps(straggler):
        assert sum(mean.parts_ns) == mean.dur_ns


def test_own_time_is_the_step_less_waiting(straggler):
    own_ms = [own_ns(mean) / 1e6 for mean in mean_steps(straggler)]
    assert own_ms == [80, 80, 80, 80, 80, 100, 80, 80]


def test_the_mean_of_the_job_is_taken_over_ranks(straggler):
    # Seven ranks wait 20 ms and idle 5 ms, one waits 0 and idles 25 ms.
    assert job_mean(mean_steps(straggler)) == (60e6, 10e6, 17.5e6, 5e6, 0, 0, 7.5e6)


def test_without_steps_the_whole_trace_is_used(straggler, single):
    assert basis(straggler) is Basis.AVERAGED
    assert basis(replace(straggler, breakdown=())) is Basis.WHOLE
    assert job_mean(mean_steps(single)) == ()


def test_up_to_sixty_four_rows_are_all_shown(straggler):
    assert shown_rows(mean_steps(straggler), (5,)) == tuple(range(8))


def test_of_many_rows_the_extremes_and_the_blamed_are_shown(large):
    means = mean_steps(large)
    shown = shown_rows(means, (700, 512))
    assert len(shown) == MAX_ROWS
    assert shown[0] == 700  # the longest own time
    assert {700, 512, 1023} <= set(shown)


def test_hundreds_of_blamed_ranks_leave_room_for_the_others(large):
    assert len(shown_rows(mean_steps(large), range(512))) == MAX_ROWS


def test_a_finding_about_most_ranks_singles_nobody_out(straggler):
    assert faulty_ranks(straggler) == (5,)
