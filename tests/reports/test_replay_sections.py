"""Sections about the replay: what stragglers cost, the efficiency tree, the path and slack."""

from __future__ import annotations

import re
from dataclasses import replace

import msgspec
import pytest
from markupsafe import Markup

from tracekit.replays import Answer
from tracekit.reports.render import shown_sections
from tracekit.reports.sections import critical_path, efficiency_tree, method, what_if, what_to_fix
from tracekit.results import SCHEMA_VERSION, encoded_result, read_result

MS = 1_000_000
OF_REPLAY = (what_if, efficiency_tree, critical_path)


def words(markup):
    """The text of a piece of the page, with one space between elements."""
    return " ".join(re.sub(r"<[^>]*>", " ", str(markup)).split())


def body_rows(markup):
    """The rows of all tables, each as its text without the headings of columns."""
    bodies = re.findall(r"<tbody>(.*?)(?:</tbody>|$)", markup, flags=re.DOTALL)
    return [words("<tr" + row) for body in bodies for row in body.split("<tr")[1:]]


def with_replay(result, **changes):
    return replace(result, replay=replace(result.replay, **changes))


def with_slowdowns(result, **changes):
    return replace(result, what_if=msgspec.structs.replace(result.what_if, **changes))


@pytest.mark.parametrize("module", OF_REPLAY)
def test_a_run_without_a_replay_has_no_such_section(healthy, module):
    assert module.render(healthy) is None


@pytest.mark.parametrize("module", OF_REPLAY)
def test_a_hostile_name_stays_text(hostile, module):
    body = module.render(hostile)
    assert isinstance(body, Markup)
    assert re.findall(r"<(?:script|img|svg)", body) == []


def test_a_result_written_before_there_were_replays_draws_as_before(tmp_path, straggler):
    fields = msgspec.json.decode(encoded_result(straggler))
    for name in ("what_if", "replay"):
        del fields[name]
    assert fields["schema_version"] == SCHEMA_VERSION
    path = tmp_path / "result.json"
    path.write_bytes(msgspec.json.encode(fields))
    ids = [section.id for section in shown_sections(read_result(path))]
    assert "what-to-fix" in ids
    assert {"what-if", "efficiency-tree", "critical-path"} & set(ids) == set()


def test_the_step_without_stragglers_is_said_with_the_error_of_the_replay(straggler):
    body = what_if.render(straggler)
    # 120 ms / 1.25 = 96 ms.
    assert "would take 96 ms instead of 120 ms: 20.0 % of the GPU time." in body
    assert "misses the measured step of 125 ms by 4.0 %." in body


def test_a_replay_in_which_too_much_stays_where_it_was_claims_nothing(straggler):
    result = with_replay(straggler, launched_share=0.9)
    assert "Only 90.0 % of the device" in words(what_if.render(result))
    assert efficiency_tree.render(result) is None
    assert critical_path.render(result) is None


def test_what_slows_the_step_alone_is_listed_the_largest_first(straggler):
    body = what_if.render(straggler)
    # Of 96 ms: 1.2 is 19.2 ms more, 1.125 12 ms, 1.1 9.6 ms, 1.0625 6 ms.
    assert body_rows(body) == [
        "stage 3 1.20\u00d7 115 ms 19.2 ms",
        "forward-compute 1.12\u00d7 108 ms 12 ms",
        "replica 1 1.10\u00d7 106 ms 9.6 ms",
        "grads-reduce-scatter 1.06\u00d7 102 ms 6 ms",
    ]
    assert "A replica is the ranks that share one data-parallel number" in body
    # The optimizer, replica 0 and three stages.
    assert "Left out: 5 others below 0.5 %." in body


def test_an_only_replica_or_stage_is_not_listed(straggler):
    body = what_if.render(with_slowdowns(straggler, by_dp={"0": 1.25}, by_stage={"0": 1.25}))
    assert "replica 0" not in body
    assert "A replica is" not in body
    assert "stage 0" not in body
    assert "the last pipeline stage" not in body


def test_replicas_of_one_rank_each_are_named_as_ranks(straggler):
    ranks = {str(i): 1.0 + i / 100 for i in range(8)}
    result = with_slowdowns(
        straggler,
        by_type={"host": 1.0},
        by_dp=ranks,
        by_stage={"0": 1.25},
        by_worker={f"{i},0": 1.0 for i in range(8)},
    )
    body = what_if.render(result)
    assert body_rows(body)[0] == "rank 7 1.07\u00d7 103 ms 6.72 ms"
    assert "Of the host only the whole time" in body


def test_a_thousand_replicas_are_cut(large):
    body = what_if.render(large)
    # Replicas 0 to 1023, stage 3 and two kinds of work are above the limit.
    assert "The first 64 of 1,027 rows" in body
    assert body_rows(body)[0] == "replica 0 1.30\u00d7 125 ms 28.8 ms"


def test_shares_of_the_slowest_workers_and_the_last_stage_are_sentences(straggler):
    body = what_if.render(straggler)
    assert "the slowest 3 % of the workers (1 of 8) like the mean would win back 50.0 %" in body
    assert "win back 120.0 % of this cost: what is left is faster than the mean." in body
    body = what_if.render(with_slowdowns(straggler, worker_share=None, last_stage_share=-0.1))
    assert "the workers" not in body
    assert "Making the last pipeline stage like the mean would win nothing back." in body


def test_a_job_without_stragglers_is_told_so_without_a_table(straggler):
    for slowdown in (1.004, 0.998):
        result = with_slowdowns(straggler, slowdown=slowdown, waste=1 - 1 / slowdown)
        body = what_if.render(result)
        assert "Equally long work on all ranks would gain next to nothing of the 120 ms" in body
        assert "<table" not in body


def test_a_replay_that_misses_the_step_claims_nothing(straggler):
    result = with_replay(straggler, error_share=0.051)
    assert words(what_if.render(result)) == (
        "The replay misses the measured step of 125 ms by 5.1 %, more than 5.0 %: "
        "nothing is claimed from it."
    )
    assert efficiency_tree.render(result) is None
    assert critical_path.render(result) is None


def test_inferred_dependencies_are_said(straggler):
    assert "inferred" not in what_if.render(straggler)
    assert "inferred from the times" in what_if.render(with_replay(straggler, is_inferred=True))


def test_answers_say_what_a_change_buys(straggler):
    answers = (
        Answer(question="scale kernel:gemm=0.5", step_ns=90.0 * MS, gained_ns=30.0 * MS),
        Answer(question="scale transfer=2", step_ns=132.0 * MS, gained_ns=-12.0 * MS),
    )
    body = what_if.render(with_replay(straggler, answers=answers))
    assert body_rows(body)[-2:] == [
        "scale kernel:gemm=0.5 90 ms 30 ms 25.0 %",
        "scale transfer=2 132 ms -12 ms -10.0 %",
    ]


def test_the_shares_of_the_tree_are_multiplied(straggler):
    body = efficiency_tree.render(straggler)
    # 60/72 x 72/90 x 90/100 x 100/120 = 60/120.
    assert (
        "50.0 % of the replayed step is compute: load balance 83.3 % \u00d7 serialization 80.0 % "
        "\u00d7 orchestration 90.0 % \u00d7 transfer 83.3 %."
    ) in body


def test_the_bars_of_the_tree_add_up_to_the_step(straggler):
    body = efficiency_tree.render(straggler)
    # 60, 12, 18, 10 and 20 of 120 ms.
    assert re.findall(r"--a:([\d.]+);--z:([\d.]+)", body) == [
        ("0.00", "50.00"),
        ("50.00", "60.00"),
        ("60.00", "75.00"),
        ("75.00", "83.33"),
        ("83.33", "100.00"),
        ("0.00", "100.00"),
    ]
    rows = body_rows(body)
    assert rows[5].startswith("Mean compute 60 ms 50.0 %")
    assert rows[-1] == "Mean step, replayed 120 ms 100.0 %"


def test_a_replay_without_compute_has_no_tree(straggler):
    assert efficiency_tree.render(with_replay(straggler, tree=None)) is None


def test_the_path_says_who_takes_how_much_and_where_to_look(straggler):
    body = critical_path.render(straggler)
    assert body_rows(body)[:3] == [
        "rank 5 host 60 ms 50.0 % host \u2013",
        "rank 5 gemm 48 ms 40.0 % compute 1.234567 s to 1.234667 s",
        "rank 0 latency 12 ms 10.0 % latency \u2013",
    ]
    assert "of the step</th>" in body
    assert '<tr class="more" data-rank="5">' in body
    assert "Latency: launches to arrive" in body


def test_of_a_long_path_the_sixteen_largest_pieces_are_shown(large):
    body = critical_path.render(large)
    assert body.count("<tr class=") == 16
    # 24 pieces of 5 ms, of which 8 are cut.
    assert "Shown: the 16 largest; 8 smaller ones" in body
    assert "take 40 ms a step." in body


def test_a_path_longer_than_the_mean_step_has_shares_of_itself(straggler):
    body = critical_path.render(with_replay(straggler, path_step_ns=100.0 * MS))
    assert "The path is 120 ms a step, more than the mean step of 100 ms" in body
    assert body_rows(body)[0].startswith("rank 5 host 60 ms 50.0 %")
    assert "of the path</th>" in body


def test_the_path_of_a_change_says_so(straggler):
    body = critical_path.render(with_replay(straggler, path_of="scale <gemm>=0"))
    assert "per step, with: scale &lt;gemm&gt;=0" in body


def test_slack_says_how_much_is_critical(straggler):
    body = critical_path.render(straggler)
    assert body_rows(body)[-1] == "gemm 480 ms 10.0 % 7 ms compute"


def test_nothing_on_the_path_and_no_slack_draw_no_section(straggler):
    assert critical_path.render(with_replay(straggler, critical_path=(), slack=())) is None
    only_path = critical_path.render(with_replay(straggler, slack=()))
    assert "Slack" not in only_path
    only_slack = critical_path.render(with_replay(straggler, critical_path=()))
    assert "Longest path" not in only_slack


def test_a_finding_shows_both_figures_of_the_replay(straggler):
    finding = straggler.findings[-1]
    for ranks, who in (((5,), "this rank"), ((5, 6), "these ranks")):
        saving = replace(finding.saving, replayed_ns=18.0 * MS, alone_ns=19.5 * MS)
        changed = replace(finding, saving=saving, ranks=ranks)
        body = what_to_fix.render(replace(straggler, findings=(changed,)))
        assert (
            f"Replayed over all ranks: 18 ms per step; {who} alone, optimistic: 19.5 ms per step."
        ) in body
    saving = replace(finding.saving, replayed_ns=18.0 * MS)
    body = what_to_fix.render(replace(straggler, findings=(replace(finding, saving=saving),)))
    assert "Replayed over all ranks: 18 ms per step." in body


def test_a_saving_that_was_not_replayed_says_nothing_of_it(straggler):
    assert "eplayed over all ranks" not in what_to_fix.render(straggler)


def test_the_method_explains_the_replay_where_there_is_one(straggler, healthy):
    for term in ("Replay", "Efficiency tree", "Critical path", "Slack"):
        assert f"<dt>{term}</dt>" in method.render(straggler)
        assert f"<dt>{term}</dt>" not in method.render(healthy)


def test_clocks_below_the_highest_have_a_bar_and_lower_the_efficiency(straggler):
    tree = replace(straggler.replay.tree, clock_share=0.9)
    body = words(efficiency_tree.render(with_replay(straggler, tree=tree)))
    # 60 ms of compute in 120 ms; nine tenths of the clock: 54 ms and 6 ms, 45 %.
    assert "Clock 90.0 %" in body
    assert "Global efficiency 45.0 %" in body
    assert "Clock 6 ms" in body
    assert "Mean compute 54 ms" in body


def test_the_section_ends_with_how_to_ask_for_another_change(straggler):
    assert words(what_if.render(straggler)).endswith(
        "tracekit what-if --help says what can be asked."
    )
