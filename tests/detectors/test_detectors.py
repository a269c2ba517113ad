"""What holds for every detector: how it is found, skipped, and kept from harming the others."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import tracekit
from tracekit.config import Config
from tracekit.detectors import Detector, detectors, finding, findings_of, number, rank_list
from tracekit.errors import InputError, UsageError
from tracekit.findings import Status
from tracekit.schema import COLLECTIVES, KERNELS
from tracekit.units import Unit, limit


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    share: float = limit(0.5, Unit.SHARE, "A test.")


def detector(detect, needs=()):
    return Detector(
        id="test",
        title="Something is wrong",
        clear="All is well",
        needs=needs,
        how="Record it.",
        limits=Limits,
        detect=detect,
    )


def test_every_file_is_a_detector_of_its_name():
    files = Path(tracekit.detectors.__file__).parent.glob("[a-z]*.py")
    assert list(detectors()) == sorted(path.stem.replace("_", "-") for path in files)
    assert {"exposed-communication", "idle-gpu", "load-imbalance", "straggler-rank"} <= set(
        detectors()
    )


@pytest.mark.parametrize("name", ["exposed-communication", "straggler-rank"])
def test_missing_tables_skip_a_detector_and_say_how_to_record_them(make_run, trace, name):
    (found,) = findings_of(detectors()[name], make_run(trace.kernel(0, 10)), Config())
    assert found.status is Status.SKIPPED
    assert found.why == f"the traces hold no collectives. {detectors()[name].how}"


def test_all_missing_tables_are_named(make_run, trace):
    found = findings_of(detector(lambda *_: (), (COLLECTIVES, KERNELS)), make_run(trace), Config())
    assert found[0].why == "the traces hold no collectives and no kernels. Record it."


def test_an_exception_inside_is_a_failed_finding(make_run, trace):
    def detect(_run, _limits):
        raise KeyError("column")

    (found,) = findings_of(detector(detect), make_run(trace), Config())
    assert found.status is Status.FAILED
    assert found.why.startswith("KeyError: 'column' (detect, line ")
    assert found.why.endswith("; please report it")


def test_an_exception_in_one_detector_leaves_the_others(make_run, trace, monkeypatch):
    def detect(_run, _limits):
        raise ZeroDivisionError

    broken = dataclasses.replace(detectors()["idle-gpu"], detect=detect)
    known = detectors() | {"idle-gpu": broken}
    monkeypatch.setattr("tracekit.analysis.detectors", lambda: known)
    result = tracekit.analyze(make_run(trace.kernel(0, 10).kernel(50, 10)), engine="local:1")
    status = {found.id: found.status for found in result.findings}
    assert status.pop("idle-gpu") is Status.FAILED
    assert set(status) == set(known) - {"idle-gpu"}
    assert Status.FAILED not in status.values()


def test_a_mistake_of_the_user_is_no_failure_of_the_detector(make_run, trace):
    def detect(_run, _limits):
        raise UsageError("no step in 1:2")

    with pytest.raises(UsageError):
        findings_of(detector(detect), make_run(trace), Config())


def test_limits_come_from_the_configuration_and_unknown_ones_are_refused(make_run, trace):
    seen = []
    watching = detector(lambda _run, limits: seen.append(limits.share) or ())
    findings_of(watching, make_run(trace), Config({"test": {"share": 0.25}}))
    assert seen == [0.25]
    with pytest.raises(InputError):
        findings_of(watching, make_run(trace), Config({"test": {"shares": 0.25}}))


@pytest.mark.parametrize(
    ("n_ranks", "said"),
    [
        (1, "one rank: nobody to compare it with. Record all ranks of the job."),
        (2, "2 ranks: it compares at least 3. Record all ranks of the job."),
    ],
)
def test_a_detector_that_lacks_ranks_says_how_many(make_run, runs, n_ranks, said):
    comparing = dataclasses.replace(detector(lambda *_: ()), min_ranks=3)
    run = make_run({rank: runs.Trace() for rank in range(n_ranks)})
    (found,) = findings_of(comparing, run, Config())
    assert (found.status, found.why) == (Status.SKIPPED, said)


def test_a_finding_says_that_all_is_well_unless_told_otherwise():
    found = finding(detector(lambda *_: ()), Status.CLEAR)
    assert (found.id, found.subject, found.title) == ("test", "run", "All is well")


def test_titles_name_four_ranks_at_most():
    assert rank_list([3]) == "3"
    assert rank_list([0, 1, 2, 3]) == "0, 1, 2, 3"
    assert rank_list([0, 1, 2, 3, 4]) == "0, 1, 2, 3, …"


def test_the_mean_of_no_rows_counts_as_zero():
    assert (number(None), number(2), number(0.5)) == (0.0, 2.0, 0.5)


def test_a_job_without_any_communication_kernel_is_said(runs, tmp_path):
    events = [
        ("kernel", "gemm", 1000 + 100 * k, 50, {"device": 0, "stream": 7, "correlation": k})
        for k in range(5)
    ]
    for rank in range(2):
        runs.kineto(tmp_path / "traces", events, rank=rank, world_size=2)
    result = tracekit.analyze(tmp_path / "traces", engine="local:1")
    assert "no communication seen" in {check.check for check in result.quality}
    status = {found.id: found.status for found in result.findings}
    assert status["straggler-rank"] is status["exposed-communication"] is Status.SKIPPED


def test_nothing_at_all_fails_no_detector(make_run, runs):
    result = tracekit.analyze(make_run({0: runs.Trace(), 1: runs.Trace()}), engine="local:1")
    assert {found.status for found in result.findings} <= {Status.SKIPPED, Status.CLEAR}
