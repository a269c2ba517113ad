"""Findings and the result: what is written comes back, and order and severity follow the saving."""

from __future__ import annotations

import json

import pytest

from tracekit.errors import InputError
from tracekit.findings import (
    Cause,
    Change,
    Column,
    Confidence,
    Evidence,
    Finding,
    Level,
    Range,
    Recommendation,
    Saving,
    Scope,
    Severity,
    Status,
    ranked,
    with_severity,
)
from tracekit.results import (
    SCHEMA_VERSION,
    Parts,
    Quality,
    RankFacts,
    Result,
    RunFacts,
    Source,
    SourceFile,
    encoded_result,
    read_result,
    write_result,
)
from tracekit.units import Quantity, Unit


def saving(share, high_ns=2e6):
    return Saving(
        per_step_ns=Range(1e6, high_ns),
        share=share,
        share_high=2 * share,
        gpu_hours_per_day=Range(1.0, 2.0),
        assumes="The others do not wait.",
    )


def finding(name="idle-gpu", status=Status.FOUND, **more):
    return Finding(id=name, subject="rank 2", status=status, title="Rank 2 is late", **more)


def full_finding():
    return finding(
        severity=Severity.CRITICAL,
        cause=Cause.SLOW_HOST,
        ranks=(2,),
        groups=("tp0",),
        phases=("backward",),
        steps=(3, 4),
        measured=Quantity(0.8, Unit.SHARE),
        limit=Quantity(0.5, Unit.SHARE),
        confidence=Confidence(Level.HIGH, "No clock enters."),
        saving=saving(0.12),
        recommendation=Recommendation("Move the job.", Change.SETTING, ("export A=1",)),
        evidence=(
            Evidence(
                "Waits",
                (Column("Rank"), Column("Wait", Unit.NS)),
                (("<b>2</b>", 5), (None, 1.5), (True, 0)),
            ),
        ),
        scope=Scope(victims=(0, 1, 3), start_ns=-(2**60), end_ns=2**60 + 1),
        why="",
    )


def whole_result():
    file = SourceFile(path="r2.json", rank=2, size_bytes=9, n_events=3, n_dropped=1, why=("cut",))
    parts = Parts(
        rank=2, device=0, step=3, start_ns=2**60 + 1, dur_ns=10, exposed_compute_ns=4,
        overlapped_ns=1, exposed_communication_ns=3, exposed_copy_ns=1, idle_ns=1,
        exposed_waiting_ns=2, exposed_transfer_ns=1, unsplit_communication_ns=0,
        is_complete=True, is_averaged=False,
    )  # fmt: skip
    facts = RankFacts(rank=2, host=None, gpu_model="H100", backend="nccl", devices=(0,))
    return Result(
        tracekit_version="0.1.0",
        created="2026-01-01T00:00:00Z",
        source=Source(path="traces", files=(file,), n_dropped=1, others=("other",)),
        run=RunFacts(
            world_size=4, ranks=(facts,), missing_ranks=(0, 1, 3), steps=(3, 4),
            step_source="ProfilerStep", averaged_steps=(4,), averaged_why="the first is cut",
            devices=("H100",), layout={"dp": 4}, clock_error_ns=None, device_kind="gpu",
            step_ns=10.0, n_gpus=4,
        ),
        headline=("Rank 2 is late.", "Saves 12 %.", "Move the job."),
        efficiency=None,
        breakdown=(parts,),
        whole=(),
        findings=(full_finding(), finding("a", Status.SKIPPED, why="no steps")),
        quality=(Quality(check="cut", severity=Severity.INFO, rank=None, count=1, detail="tail"),),
    )  # fmt: skip


def test_what_is_written_comes_back(tmp_path):
    path = tmp_path / "result.json"
    write_result(whole_result(), path)
    assert read_result(path) == whole_result()
    assert [item.name for item in tmp_path.iterdir()] == ["result.json"]


def test_other_programs_read_plain_json():
    data = json.loads(encoded_result(whole_result()))
    assert data["schema_version"] == SCHEMA_VERSION
    assert data["findings"][0]["measured"] == {"value": 0.8, "unit": "share"}
    assert data["breakdown"][0]["start_ns"] == 2**60 + 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "not a result of tracekit"),
        ("<html>", "not a result of tracekit"),
        ('{"schema_version": 1}', "not a result of tracekit"),
        ('{"schema_version": 99}', f"schema version 99, not {SCHEMA_VERSION}"),
    ],
)
def test_what_is_no_result_is_refused_by_name(tmp_path, text, message):
    path = tmp_path / "result.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message) as caught:
        read_result(path)
    assert str(path) in caught.value.message


def test_a_result_that_is_not_there_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        read_result(tmp_path / "result.json")


@pytest.mark.parametrize(
    ("share", "severity"),
    [
        (0.0999, Severity.WARNING),
        (0.10, Severity.CRITICAL),
        (0.0099, Severity.INFO),
        (0.01, Severity.WARNING),
        (0.0, Severity.INFO),
    ],
)
def test_severity_follows_the_low_end_of_the_saving(share, severity):
    assert with_severity(finding(saving=saving(share))).severity is severity


def test_a_finding_without_a_saving_is_info():
    assert with_severity(finding()).severity is Severity.INFO


def test_a_severity_that_is_given_stays():
    given = finding(severity=Severity.CRITICAL)
    assert with_severity(given) is given


@pytest.mark.parametrize("status", [Status.CLEAR, Status.SKIPPED, Status.FAILED])
def test_only_what_is_found_has_a_severity(status):
    assert with_severity(finding(status=status)).severity is None


def test_findings_come_by_status_then_severity_then_saving():
    small = finding("a", severity=Severity.WARNING, saving=saving(0.02, high_ns=2e6))
    large = finding("b", severity=Severity.WARNING, saving=saving(0.02, high_ns=3e6))
    critical = finding("c", severity=Severity.CRITICAL)
    failed = finding("d", Status.FAILED)
    clear = finding("e", Status.CLEAR)
    skipped = finding("0", Status.SKIPPED)
    mixed = (skipped, clear, small, failed, large, critical)
    assert ranked(mixed) == (critical, large, small, failed, clear, skipped)


def test_equal_findings_come_by_id_and_subject():
    first, second = finding("a"), finding("b")
    assert ranked((second, first)) == (first, second)


@pytest.mark.parametrize("ends", [(2.0, 1.0), (0.0, float("inf")), (float("nan"), 1.0)])
def test_a_range_is_finite_and_in_order(ends):
    with pytest.raises(ValueError, match="not a range"):
        Range(*ends)
