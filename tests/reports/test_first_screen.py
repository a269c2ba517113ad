"""The first screen: the verdict, the sentences when the result has none, and the warnings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tracekit.findings import Severity, Status
from tracekit.reports.first_screen import (
    HOST_SENTENCE,
    REPLAY_SENTENCE,
    facts,
    headline,
    notices,
    overall,
)
from tracekit.reports.render import report_html
from tracekit.reports.replayed import replay_alone


def of_status(result, *statuses):
    kept = tuple(finding for finding in result.findings if finding.status in statuses)
    return replace(result, findings=kept)


@pytest.mark.parametrize(
    ("severity", "label"),
    [
        (Severity.CRITICAL, "Critical"),
        (Severity.WARNING, "Warning"),
        (Severity.INFO, "Minor findings only"),
    ],
)
def test_the_verdict_is_the_worst_severity_found(straggler, severity, label):
    findings = tuple(
        replace(finding, severity=severity) if finding.status is Status.FOUND else finding
        for finding in straggler.findings
    )
    assert overall(replace(straggler, findings=findings)).label == label


def test_failed_and_skipped_checks_alone_are_not_health(straggler):
    assert overall(of_status(straggler, Status.CLEAR)).label == "Healthy"
    assert overall(of_status(straggler, Status.SKIPPED, Status.FAILED)).label == "Not enough data"


def test_a_failed_detector_is_not_health(straggler):
    assert overall(of_status(straggler, Status.CLEAR, Status.FAILED)).label == "Incomplete"


def test_a_run_is_healthy_where_at_least_half_of_the_checks_were_made(straggler):
    clear, skipped = straggler.findings[:2]
    half = (clear, skipped)
    assert overall(replace(straggler, findings=half)).label == "Healthy"
    assert overall(replace(straggler, findings=(*half, skipped))).label == "Incomplete"
    of_a_log = replace(skipped, is_of_further_source=True)
    assert overall(replace(straggler, findings=(*half, of_a_log))).label == "Healthy"


def test_a_result_without_sentences_still_says_what_is_known(straggler):
    bare = replace(straggler, headline=())
    assert headline(bare) == ("2 findings in this run: see below.",)
    clear = of_status(bare, Status.CLEAR)
    assert headline(clear) == ("Nothing found that is worth fixing: 1 check came out fine.",)


def test_everything_that_weakens_the_figures_is_said(straggler):
    assert notices(of_status(straggler, Status.FOUND)) == ()
    run = replace(straggler.run, missing_ranks=(6, 7), world_size=10)
    source = replace(straggler.source, n_dropped=1)
    assert notices(replace(straggler, run=run, source=source)) == (
        "2 ranks of 10 missing (6\u20137): what they did is not in these figures.",
        "1 detector failed, so a problem may be missing here.",
        "1 event dropped while reading.",
    )


def test_one_missing_rank_is_spoken_of_as_one(straggler):
    run = replace(straggler.run, missing_ranks=(8,), world_size=9)
    assert notices(replace(straggler, run=run))[0] == (
        "1 rank of 9 missing (8): what it did is not in these figures."
    )


@pytest.mark.parametrize(
    ("names", "counted"), [(("a",), "1 other run"), (tuple("abcde"), "5 other runs")]
)
def test_runs_beside_the_analysed_one_are_counted_first(straggler, names, counted):
    source = replace(straggler.source, other_runs=names)
    assert notices(replace(straggler, source=source))[0] == (
        f"This path holds {counted}; pick one with --run NAME."
    )


def test_why_no_device_was_recorded_is_said_where_the_capture_tells(single, straggler):
    why = replace(straggler.quality[0], check="no device events", detail="runtime calls only")
    first = notices(replace(single, quality=(why,)))[0]
    assert first == f"{HOST_SENTENCE} Recorded: runtime calls only."
    info = replace(why, severity=Severity.INFO)
    assert notices(replace(single, quality=(info,)))[0] == HOST_SENTENCE


def test_what_is_known_of_the_clocks_is_said(straggler):
    def with_error(error_ns):
        return dict(facts(replace(straggler.run, clock_error_ns=error_ns)))

    assert with_error(12_000.0)["Clock error"] == "12 \u00b5s"
    assert with_error(None)["Clocks"] == "not aligned"
    assert with_error(0.0)["Clocks"] == "one for all ranks"


def test_one_rank_has_no_clock_to_be_aligned_with(single):
    assert {"Clocks", "Clock error"} & dict(facts(single.run)).keys() == set()


def test_many_gpu_models_are_counted(straggler):
    ranks = tuple(replace(rank, gpu_model=f"GPU {rank.rank}") for rank in straggler.run.ranks)
    shown = dict(facts(replace(straggler.run, ranks=ranks)))
    assert shown["Devices"] == "8 \u00d7 GPU 0, GPU 1, GPU 2 and 5 more"


def test_a_run_known_by_its_replay_alone_says_what_that_found(alone):
    assert overall(alone).label == "Replayed only"
    step = "the mean step would take 96 ms instead of 120 ms"
    assert headline(alone) == (
        f"Without stragglers {step}: 20.0 % of the GPU time.",
        "0 of 17 checks ran.",
        "More is below.",
    )
    assert notices(alone)[0] == REPLAY_SENTENCE
    shown = dict(facts(alone.run, replay_alone(alone)))
    assert shown == {
        "Ranks": "8 of 8 analysed",
        "Mean step": "125 ms, replayed 120 ms",
        "Layout": "DP 8",
    }
    page = report_html(alone)
    assert "training thread" not in page
    assert 'id="filter"' not in page


def test_a_replay_that_cannot_be_trusted_is_not_enough_data(alone):
    result = replace(alone, replay=replace(alone.replay, error_share=0.06))
    assert overall(result).label == "Not enough data"
    assert headline(result) == alone.headline
    assert notices(result)[0] == REPLAY_SENTENCE
    assert dict(facts(result.run, replay_alone(result)))["Mean step"] == "125 ms, replayed 120 ms"
