"""The first screen: the verdict, the sentences when the result has none, and the warnings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tracekit.findings import Severity, Status
from tracekit.reports.first_screen import facts, headline, notices, overall


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


def test_many_gpu_models_are_counted(straggler):
    ranks = tuple(replace(rank, gpu_model=f"GPU {rank.rank}") for rank in straggler.run.ranks)
    shown = dict(facts(replace(straggler.run, ranks=ranks)))
    assert shown["Devices"] == "8 \u00d7 GPU 0, GPU 1, GPU 2 and 5 more"
