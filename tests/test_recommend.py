"""Advice, severities, bounded savings, and the three sentences on top."""

from __future__ import annotations

from dataclasses import dataclass

from tracekit.advice import ADVICE
from tracekit.detectors import Detector
from tracekit.findings import Cause, Finding, Range, Saving, Severity, Status
from tracekit.recommend import completed, headline


def saved(low_ns, high_ns, step_ns=100.0):
    return Saving(
        per_step_ns=Range(low_ns, high_ns),
        share=low_ns / step_ns,
        share_high=high_ns / step_ns,
        gpu_hours_per_day=Range(24 * low_ns / step_ns, 24 * high_ns / step_ns),
        assumes="nothing else changes",
    )


def found(name, saving=None, cause=Cause.HOST_SYNC, subject="run", **fields):
    return Finding(
        id=name,
        subject=subject,
        status=Status.FOUND,
        title=f"{name} was found",
        cause=cause,
        saving=saving,
        **fields,
    )


@dataclass(frozen=True)
class Limits:
    """None."""


def detector(name, bounded_by=None):
    return Detector(
        id=name,
        title=name,
        clear=f"no {name}",
        needs=(),
        how="",
        limits=Limits,
        detect=lambda _run, _limits: (),
        bounded_by=bounded_by,
    )


def test_a_finding_without_a_saving_is_info():
    (finding,) = completed((found("a"),), {"a": detector("a")})
    assert finding.severity is Severity.INFO


def test_a_saving_is_at_most_that_of_the_finding_it_is_part_of():
    known = {"part": detector("part", bounded_by="whole"), "whole": detector("whole")}
    findings = completed((found("part", saved(30, 60)), found("whole", saved(10, 20))), known)
    part = next(finding for finding in findings if finding.id == "part")
    assert part.saving.per_step_ns == Range(20, 20)  # its low end of 30 exceeds the parent's 20
    assert part.saving.share_high == 0.2
    assert part.saving.gpu_hours_per_day == Range(4.8, 4.8)  # 24 h × 20 / 100


def test_a_saving_below_its_parents_stays():
    known = {"part": detector("part", bounded_by="whole"), "whole": detector("whole")}
    findings = completed((found("part", saved(1, 2)), found("whole", saved(10, 20))), known)
    assert next(f for f in findings if f.id == "part").saving.per_step_ns == Range(1, 2)


def test_every_found_finding_gets_advice_for_its_cause():
    findings = completed((found("a", saved(1, 2), cause=Cause.ALLOCATOR),), {"a": detector("a")})
    assert findings[0].recommendation == ADVICE[Cause.ALLOCATOR]


def test_a_job_that_stands_still_has_no_step_to_save_from():
    still = found("a", cause=Cause.MISSING_CALL, severity=Severity.CRITICAL)
    _, saving, _ = headline((still,), 1)
    assert saving == "No further step ends before this is mended."


def test_a_cause_without_advice_of_its_own_says_how_to_record_more():
    unadvised = next(cause for cause in Cause if cause not in ADVICE)
    findings = completed((found("a", saved(1, 2), cause=unadvised),), {"a": detector("a")})
    assert findings[0].recommendation == ADVICE[Cause.UNKNOWN]


def test_the_headline_is_the_finding_with_the_largest_saving():
    findings = completed(
        (found("small", saved(5, 5)), found("large", saved(20, 40), cause=Cause.ALLOCATOR)),
        {"small": detector("small"), "large": detector("large")},
    )
    cause, saving, cure = headline(findings, 2)
    assert cause == "large was found: allocator."
    assert saving == (
        "Fixing it saves 20 ns to 40 ns of each step, up to 40.0 % of the GPU time "
        "(9.6 GPU-hours a day)."
    )
    assert cure == ADVICE[Cause.ALLOCATOR].text


def test_a_saving_of_one_figure_is_an_upper_bound():
    findings = completed((found("a", saved(40, 40)),), {"a": detector("a")})
    assert headline(findings, 1)[1].startswith("Fixing it saves up to 40 ns of each step")


def test_a_run_with_nothing_above_info_is_healthy():
    findings = completed((found("a", saved(0, 40)),), {"a": detector("a")})
    assert headline(findings, 1) == (
        "Nothing found that is worth fixing.",
        "1 of 1 checks ran, 1 smaller note stands below.",
        "What was checked and what would need more data is listed below.",
    )


def test_without_a_gpu_hours_are_those_of_ranks():
    findings = completed((found("a", saved(40, 40)),), {"a": detector("a")})
    assert "rank-hours a day" in headline(findings, 1, "rank")[1]


def test_checks_that_failed_or_were_skipped_did_not_run():
    findings = tuple(
        Finding(id=name, subject="run", status=status, title=name)
        for name, status in (("a", Status.FAILED), ("b", Status.SKIPPED), ("c", Status.CLEAR))
    )
    first, second, _ = headline(findings, 3)
    assert first == "Too little could be checked."
    assert second == "1 of 3 checks ran."


def test_a_saving_is_left_to_the_part_that_names_the_same_cause():
    known = {"part": detector("part", bounded_by="whole"), "whole": detector("whole")}
    findings = completed((found("whole", saved(20, 50)), found("part", saved(20, 40))), known)
    part, whole = findings
    assert (part.id, part.severity) == ("part", Severity.CRITICAL)
    assert (whole.saving, whole.severity, whole.why) == (
        None,
        Severity.INFO,
        "most of it is named by part",
    )


def test_a_part_of_another_cause_leaves_the_whole_its_saving():
    known = {"part": detector("part", bounded_by="whole"), "whole": detector("whole")}
    other = found("part", saved(20, 40), cause=Cause.INPUT_PIPELINE)
    by_id = {each.id: each for each in completed((found("whole", saved(20, 50)), other), known)}
    assert by_id["whole"].saving.per_step_ns == Range(20, 50)


def test_a_small_part_leaves_the_whole_its_saving():
    known = {"part": detector("part", bounded_by="whole"), "whole": detector("whole")}
    findings = (found("whole", saved(20, 50)), found("part", saved(20, 24)))
    by_id = {each.id: each for each in completed(findings, known)}
    assert by_id["whole"].saving.per_step_ns == Range(20, 50)


def test_of_two_that_save_about_the_same_the_surer_one_comes_first():
    known = {"a": detector("a"), "b": detector("b")}
    vague, sure = found("a", saved(12, 20.3)), found("b", saved(19, 19.8))
    findings = completed((vague, sure), known)
    assert [each.id for each in findings] == ["b", "a"]
    assert headline(findings, 2)[0].startswith("b was found")
