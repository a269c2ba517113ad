"""Sections about waiting: who caused it, why, when, and how one collective went."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from markupsafe import Markup

from tracekit.findings import Status
from tracekit.reports.sections import (
    arrivals,
    compute_of_ranks,
    lateness_over_steps,
    who_waits_for_whom,
    why_late,
)
from tracekit.waiting import LATENESS, WHY_LATE, StepLateness, WaitedFor, Waiting

MS = 1_000_000
OF_WAITING = (who_waits_for_whom, lateness_over_steps, compute_of_ranks, arrivals)


def words(markup):
    """The text of a piece of the page, with one space between elements."""
    return " ".join(re.sub(r"<[^>]*>", " ", str(markup)).split())


def body_rows(markup):
    """The rows of all tables, each as its text without the headings of columns."""
    bodies = re.findall(r"<tbody>(.*?)(?:</tbody>|$)", markup, flags=re.DOTALL)
    return [words("<tr" + row) for body in bodies for row in body.split("<tr")[1:]]


def waiting(result, **changes):
    return replace(result, waiting=replace(result.waiting, **changes))


@pytest.mark.parametrize("module", OF_WAITING)
def test_a_result_without_waiting_has_no_such_section(healthy, module):
    assert module.render(healthy) is None


@pytest.mark.parametrize("module", OF_WAITING)
def test_a_result_whose_tables_are_empty_has_no_such_section(straggler, module):
    empty = Waiting(total_per_step_ns=0.0, matrix=(), ranks=(), by_step=(), meetings=())
    assert module.render(replace(straggler, waiting=empty)) is None


@pytest.mark.parametrize("module", [*OF_WAITING, why_late])
def test_a_hostile_name_stays_text(hostile, module):
    body = module.render(hostile)
    assert isinstance(body, Markup)
    assert re.findall(r"<(?:script|img|svg)", body) == []


def test_the_matrix_names_the_culprit_and_what_each_victim_waits(straggler):
    body = who_waits_for_whom.render(straggler)
    # Seven ranks wait 20 ms each for rank 5: 140 ms.
    assert body_rows(body) == ["rank 5 140 ms" + " 20 ms" * 7]
    assert "Shown: all of the 140 ms of exposed waiting a step" in body
    assert "{row} made rank {column} wait {value} a step" in body


def test_the_worst_culprit_comes_first_and_pairs_that_do_not_wait_are_blank(straggler):
    pairs = tuple(
        WaitedFor(culprit=culprit, victim=victim, per_step_ns=ms * MS)
        for culprit, victim, ms in ((0, 1, 2.0), (3, 0, 4.0), (3, 1, 1.0))
    )
    body = who_waits_for_whom.render(waiting(straggler, matrix=pairs, total_per_step_ns=14.0 * MS))
    assert body_rows(body) == ["rank 3 5 ms 4 ms 1 ms", "rank 0 2 ms 2 ms"]
    assert body.count("<td class=hx>") == 1
    assert "Shown: 7 ms (50.0 %) of the 14 ms" in body


def test_ranks_that_wait_share_columns_beyond_sixty_four(large):
    body = who_waits_for_whom.render(large)
    # 1,024 ranks on 64 columns are 16 to a column; rank 700 makes each of them wait 20 ms.
    assert "Columns: the waiting of 16 ranks each, added up." in body
    assert '<th scope="col" class="narrow">16\u201331</th>' in body
    assert body_rows(body)[0].startswith("rank 700 20.5 s 320 ms 320 ms")
    assert len(re.findall(r"<td class=h", body)) <= 64 * 64


def test_only_the_sixty_four_worst_culprits_have_rows(straggler):
    pairs = tuple(
        WaitedFor(culprit=rank, victim=rank - 1, per_step_ns=rank * 1.0 * MS)
        for rank in range(1, 71)
    )
    body = who_waits_for_whom.render(
        waiting(straggler, matrix=pairs, total_per_step_ns=2485.0 * MS)
    )
    assert "Rows: the 64 worst of 70 culprits." in body
    # 1 + 2 + … + 70 = 2485 ms, of which the six least culprits cause 1 + … + 6 = 21 ms.
    assert "Shown: 2.46 s (99.2 %) of the 2.48 s" in body


def test_bars_of_a_late_rank_start_where_the_last_one_ended_and_end_at_the_lateness(straggler):
    body = why_late.render(straggler)
    # +25 ms, -1 ms, -4 ms: on an axis from 0 to 25 ms the ends are 100, 96 and 80 %.
    assert re.findall(r"--a:([\d.]+);--z:([\d.]+)", body) == [
        ("0.00", "100.00"),
        ("96.00", "100.00"),
        ("80.00", "96.00"),
        ("0.00", "80.00"),
    ]
    assert body_rows(body) == [
        "input-pipeline +25 ms 30 ms 5 ms",
        "launch latency \u22121 ms 1 ms 2 ms",
        "copies \u22124 ms 0 ns 4 ms",
        "lateness 20 ms \u2013 \u2013",
    ]
    assert 'href="#finding/straggler-rank/rank%205"' in body
    assert "<caption>Parts of the lateness of rank 5, per step</caption>" in body


def test_ranks_that_are_late_in_turn_are_named_together(straggler):
    finding = replace(straggler.findings[-1], ranks=(1, 2), subject="rotating")
    body = why_late.render(replace(straggler, findings=(finding,)))
    assert "Parts of the lateness of the late ranks, per step" in body


def test_the_smallest_of_many_parts_are_drawn_as_one_and_still_add_up(straggler):
    finding = straggler.findings[-1]
    cut = next(evidence for evidence in finding.evidence if evidence.title == WHY_LATE)
    rows = tuple((f"part {i}", 1.0 * MS * i, 0.0, 1.0 * MS * i) for i in range(1, 16))
    many = replace(cut, rows=(*rows, (LATENESS, None, None, 120.0 * MS)))
    body = why_late.render(replace(straggler, findings=(replace(finding, evidence=(many,)),)))
    # Parts 1, 2 and 3 make 6 of the 120 ms; they stand behind part 6.
    assert body_rows(body)[9:] == [
        "part 6 +6 ms 6 ms 0 ns",
        "3 smaller parts +6 ms \u2013 \u2013",
        "part 5 +5 ms 5 ms 0 ns",
        "part 4 +4 ms 4 ms 0 ns",
        "lateness 120 ms \u2013 \u2013",
    ]
    ends = re.findall(r"--a:([\d.]+);--z:([\d.]+)", body)
    assert ends[-2][1] == "100.00" == ends[-1][1]


@pytest.mark.parametrize("rows", [(), ((LATENESS, None, None, 1.0),), (("a", 1.0), ("b", 2.0))])
def test_a_table_of_another_form_is_not_drawn(straggler, rows):
    finding = straggler.findings[-1]
    cut = replace(finding.evidence[-1], title=WHY_LATE, rows=rows)
    result = replace(straggler, findings=(replace(finding, evidence=(cut,)),))
    assert why_late.render(result) is None


def test_only_stragglers_that_were_found_are_drawn(straggler):
    finding = straggler.findings[-1]
    for changes in ({"status": Status.CLEAR}, {"id": "slow-link"}):
        result = replace(straggler, findings=(replace(finding, **changes),))
        assert why_late.render(result) is None


def test_lateness_by_step_has_a_cell_for_every_averaged_step(straggler):
    body = lateness_over_steps.render(straggler)
    assert body_rows(body) == ["rank 5 in every step 20 ms 20 ms"]


@pytest.mark.parametrize(
    ("course", "late_ms", "expected"),
    [
        ("fixed", [2, 2, 0, 2, 2, 2, 2, 2], "in 7 of 8 steps"),
        ("trending", [1, 2, 3, 4, 5, 6, 7, 8], "grows: 1 ms in the first step, 8 ms in the last"),
        ("periodic", [0, 9, 0, 9, 0, 9, 0, 9], "every 2 steps"),
        ("periodic", [9, 0, 0, 9, 0, 0, 0, 9], "at intervals, in 3 of 8 steps"),
        ("now and then", [0, 0, 9, 0, 0, 0, 0, 0], "now and then, in 1 of 8 steps"),
    ],
)
def test_the_course_of_a_lateness_reads_as_words(straggler, course, late_ms, expected):
    run = replace(straggler.run, averaged_steps=tuple(range(8)))
    rank = replace(straggler.waiting.ranks[3], course=course)
    late = tuple(
        StepLateness(rank=3, step=step, late_ns=ms * MS, caused_ns=0.0)
        for step, ms in enumerate(late_ms)
        if ms
    )
    result = waiting(replace(straggler, run=run), by_step=late, ranks=(rank,))
    body = lateness_over_steps.render(result)
    assert body_rows(body)[0].startswith(f"rank 3 {expected} ")
    assert body.count("<td class=hx>") == late_ms.count(0)


def test_the_latest_rank_comes_first(straggler):
    late = tuple(
        StepLateness(rank=rank, step=1, late_ns=rank * MS, caused_ns=0.0) for rank in (1, 6, 2)
    )
    body = lateness_over_steps.render(waiting(straggler, by_step=late))
    assert re.findall(r'<tr data-rank="(\d)"', body) == ["6", "2", "1"]


def test_of_many_steps_those_in_a_row_with_most_lateness_are_shown(straggler):
    late = tuple(
        StepLateness(rank=5, step=step, late_ns=MS * (10 if step >= 100 else 1), caused_ns=0.0)
        for step in range(200)
    )
    run = replace(straggler.run, averaged_steps=tuple(range(200)))
    body = lateness_over_steps.render(waiting(replace(straggler, run=run), by_step=late))
    # All of the hundred late steps lie in the last 128 of 200.
    assert "Shown: steps 72 to 199, the latest 128 in a row." in body
    assert body.count('class="narrow"') == 128


def test_pipelines_are_rows_and_stages_columns(straggler):
    body = compute_of_ranks.render(straggler)
    assert body_rows(body) == [
        "pipeline of rank 0 70 ms 70 ms 70 ms 70 ms",
        "pipeline of rank 4 70 ms 70 ms 70 ms 70 ms",
    ]
    assert 'data-also="4|20 ms|0 ns"' in body
    assert 'data-also="5|0 ns|140 ms" data-marked>' in body
    assert "Marked \u25c0: ranks at fault (5)." in body


def test_of_many_pipelines_those_that_cause_most_waiting_are_shown(large):
    body = compute_of_ranks.render(large)
    assert "Shown: the 64 of 256 pipelines that cause the most waiting, the worst first." in body
    assert body_rows(body)[0].startswith("pipeline of rank 700 ")


def test_ranks_without_stages_stand_one_after_another(straggler):
    ranks = tuple(replace(each, pipeline=each.rank, stage=0) for each in straggler.waiting.ranks)
    body = compute_of_ranks.render(waiting(straggler, ranks=ranks))
    assert body_rows(body) == ["ranks 0\u20137" + " 70 ms" * 8]
    assert compute_of_ranks.render(waiting(straggler, ranks=ranks[:1])) is None


def test_a_spread_of_less_than_ten_percent_does_not_fill_the_scale(straggler):
    ranks = tuple(
        replace(each, compute_ns=(70 + each.rank % 2) * MS * 1.0)
        for each in straggler.waiting.ranks
    )
    body = compute_of_ranks.render(waiting(straggler, ranks=ranks))
    # The scale runs from 70 to 77 ms: 71 ms is on the second of its ten steps.
    assert set(re.findall(r"<td class=h(\d)", body)) == {"0", "1"}


def test_members_of_a_collective_are_drawn_from_entering_to_leaving(straggler):
    body = arrivals.render(straggler)
    table = body[: body.index("</table>")]
    # Rank 5 enters at 20 of 25 ms; the line is there, and the error of 12 µs is 0.05 %.
    assert 'style="--last:80.00;--error:0.05"' in table
    rows = body_rows(table)
    assert rows[0] == "rank 5 late +20 ms +25 ms"
    assert rows[-1] == "rank 0 +0 ns +25 ms"
    assert '<tr data-rank="5" class="late">' in table
    assert "--a:80.00;--z:100.00" in table.split("<tr")[2]


def test_a_collective_says_how_far_its_times_can_be_trusted(straggler):
    first, second = arrivals.render(straggler).split("</details>")[:2]
    assert "The last one enters 20 ms after the first. The transfer then takes 5 ms." in first
    assert "Clocks are aligned; times may be off by 12 µs" in first
    assert "0.100000 s to 0.125000 s from the start of the run" in first
    assert "Clocks are not aligned: the members are laid by their common end" in second
    assert "--error:0" in second
    one = replace(straggler.waiting.meetings[0], error_ns=0, transfer_ns=None, step=None)
    body = arrivals.render(waiting(straggler, meetings=(one,)))
    assert "Times can be compared: no error of the clocks is seen." in body
    assert "transfer then" not in body
    assert ", step" not in body


def test_a_large_collective_shows_the_last_and_the_first(large):
    body = arrivals.render(large)
    assert "The last 24 and the first 8 of the 256 listed." in body
    assert body.count("<tr data-rank") == 3 * 32
    assert body_rows(body)[0].startswith("rank 200 late ")
