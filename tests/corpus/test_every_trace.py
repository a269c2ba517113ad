"""Every public trace, alone and as a set of ranks, gives a report whose figures hold together.

`files.txt` lists the files that are traces of the profiler, `sets.txt` the folders of several
ranks, `texts.txt` logs of NCCL and measurements of nccl-tests, `exports.txt` those of Nsight
Systems; every other file must be refused in one line.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

import tracekit
from tracekit.detectors import detectors
from tracekit.errors import TracekitError
from tracekit.findings import Severity, Status
from tracekit.units import Unit

HERE = Path(__file__).parent
DUMPS = "NVIDIA+nvidia-resiliency-ext/tests/attribution/unit"
OPERATIONS = "traces/ByteDance-Seed+StragglerAnalysis/data"
FILES = (HERE / "files.txt").read_text(encoding="utf-8").splitlines()
TEXTS = (HERE / "texts.txt").read_text(encoding="utf-8").splitlines()
EXPORTS = (HERE / "exports.txt").read_text(encoding="utf-8").splitlines()
SETS = (HERE / "sets.txt").read_text(encoding="utf-8").splitlines()
CALLS = ("nccl_example_profiler_sample.json", "nccl_inspector_sample.log")
"""What plugins of NCCL wrote of its calls."""
LARGE = (
    "mtia_rank_0",
    "control.json",
    "xdit_flux",
    "ModelTC",
    "resnet50_num_workers_0",
    "resnet_kineto",
    "resnet_act_checkpoint",
    "df_index_resolver",
    "Qwen1.5",
    "modded-nanogpt",
    "megatron-tp8",
)


WITHOUT_SAVING = {
    "exposed-communication",  # what cannot be split into waiting and transfer supports none
    "host-sync",  # nor do figures of the host that the profiler's options more than double
    "launch-bound",
    "profiler-overhead",  # the job does not run under the profiler
    "straggler-rank",  # waiting that spreads over all ranks is nobody's
    "idle-gpu",  # left to the part that names its cause
    "no-communication-seen",  # a note about the capture
    "slow-transport",  # a log of NCCL has no times
    "nccl-limits",
    "slow-communicator-init",
    "low-bus-bandwidth",  # against a roof, which no job reaches
    "late-in-calls",  # calls without steps
}
STANDING_STILL = {"collective-hang", "collective-mismatch"}
"""Where a job has no step there is none to save from."""


def marked(paths):
    """The paths as parameters, those of large traces marked slow."""
    return [
        pytest.param(path, marks=pytest.mark.slow if any(n in path for n in LARGE) else ())
        for path in paths
    ]


@pytest.mark.parametrize("path", marked(FILES))
def test_a_file_gives_a_report_that_holds_together(traces, path):
    result = tracekit.analyze(traces / "traces" / path, engine="local:1")
    if not result.whole:  # neither device events nor operators: nothing could be looked at
        assert {found.status for found in result.findings} == {Status.SKIPPED}
    check(result)


@pytest.mark.parametrize("path", marked(SETS))
def test_a_set_of_ranks_gives_a_report_that_holds_together(traces, path):
    result = tracekit.analyze(traces / "traces" / path, engine="local:1")
    assert len(result.run.ranks) > 1
    check(result)


@pytest.mark.parametrize("job", ["AR", "ST"])
def test_operations_of_a_pipeline_give_a_report_that_holds_together(traces, job):
    result = tracekit.analyze(traces / OPERATIONS / f"trace-{job}.parquet", engine="local:1")
    assert result.what_if.slowdown > 1.1
    assert result.replay.is_trusted
    check(result)


@pytest.mark.parametrize("dumps", ["gpu_error_1st", "lock_gil_2nd", "gpu_error_1st/_dump_3"])
def test_dumps_of_flight_recorders_give_a_report_that_holds_together(traces, dumps):
    result = tracekit.analyze(traces / "traces" / DUMPS / "fr_traces" / dumps, engine="local:1")
    assert (result.whole, result.breakdown) == ((), ())
    check(result)


@pytest.mark.parametrize("path", TEXTS)
def test_logs_and_measurements_give_a_report_that_holds_together(traces, path):
    result = tracekit.analyze(traces / "traces" / path, engine="local:1")
    assert (result.whole, result.breakdown) == ((), ())
    assert result.run.device_kind == "logs"
    check(result)


@pytest.mark.parametrize("path", EXPORTS)
def test_an_export_of_nsight_systems_gives_a_report_that_holds_together(traces, path):
    check(tracekit.analyze(traces / "traces" / path, engine="local:1"))


@pytest.mark.parametrize("path", CALLS)
def test_calls_of_plugins_give_a_report_that_holds_together(traces, path):
    result = tracekit.analyze(traces / "traces" / path, engine="local:1")
    assert (result.whole, result.breakdown) == ((), ())
    assert result.run.device_kind == "calls"
    assert result.traffic.operations
    check(result)


def test_every_other_file_is_refused_in_one_line(traces):
    folder = traces / "traces"
    others = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    others -= {*FILES, *TEXTS, *CALLS, *EXPORTS}
    others -= {path for path in others if path.endswith(".parquet") or path.startswith(DUMPS)}
    others |= {f"{DUMPS}/fr_traces/{job}/fault_injection.log" for job in ("gpu_error_1st",)}
    for path in sorted(others):
        with pytest.raises(TracekitError) as refused:
            tracekit.analyze(folder / path, engine="local:1")
        assert "\n" not in refused.value.message
        assert refused.value.message.strip()


def check(result):
    """What must hold of every result."""
    for number in numbers(result):
        assert math.isfinite(number)
    for parts in (*result.breakdown, *result.whole):
        check_parts(parts)
    keys = Counter((found.id, found.subject) for found in result.findings)
    assert max(keys.values()) == 1
    assert {found.id for found in result.findings} == set(detectors())
    for found in result.findings:
        check_finding(found)
    assert len(result.headline) == 3
    assert all(sentence.endswith(".") for sentence in result.headline)
    assert set(result.run.averaged_steps) <= set(result.run.steps)
    if result.efficiency is not None:
        assert 0 <= result.efficiency.load_balance_share <= 1
        assert 0 <= result.efficiency.communication_share <= 1


def check_parts(parts):
    """The five parts add up to the duration, the three to exposed communication."""
    five = (
        parts.exposed_compute_ns,
        parts.overlapped_ns,
        parts.exposed_communication_ns,
        parts.exposed_copy_ns,
        parts.idle_ns,
    )
    three = (
        parts.exposed_waiting_ns,
        parts.exposed_transfer_ns,
        parts.unsplit_communication_ns,
    )
    assert sum(five) == parts.dur_ns
    assert sum(three) == parts.exposed_communication_ns
    assert min(*five, *three) >= 0


def check_finding(found):
    """Severity follows the saving, shares are shares, and a status has what it needs."""
    assert found.status is not Status.FAILED, found.why
    assert found.title
    for quantity in (found.measured, found.limit):
        if quantity is not None and quantity.unit is Unit.SHARE:
            assert 0 <= quantity.value <= 1
    for evidence in found.evidence:
        assert all(len(row) == len(evidence.columns) for row in evidence.rows)
    if found.id == "idle-gpu" and found.status in {Status.FOUND, Status.CLEAR}:
        shares = [row[2] for row in found.evidence[0].rows]
        assert sum(shares) == pytest.approx(found.measured.value, abs=1e-6)
    if found.status is Status.SKIPPED:
        assert found.why
    if found.status is not Status.FOUND:
        assert found.severity is None
        return
    assert found.cause is not None
    assert found.confidence is not None
    assert found.recommendation is not None
    saving = found.saving
    if saving is None:
        assert found.id in WITHOUT_SAVING | STANDING_STILL
        assert found.severity is Severity.INFO or found.id in STANDING_STILL
        return
    assert 0 <= saving.per_step_ns.low <= saving.per_step_ns.high
    assert 0 <= saving.share <= saving.share_high <= 1
    assert saving.gpu_hours_per_day.low <= saving.gpu_hours_per_day.high
    loud = saving.share >= 0.1, saving.share >= 0.01
    severity = {(True, True): Severity.CRITICAL, (False, True): Severity.WARNING}
    assert found.severity is severity.get(loud, Severity.INFO)


def numbers(value):
    """Every number in a result."""
    if isinstance(value, float):
        yield value
    elif is_dataclass(value):
        for each in fields(value):
            yield from numbers(getattr(value, each.name))
    elif isinstance(value, dict):
        for each in value.values():
            yield from numbers(each)
    elif isinstance(value, tuple | list):
        for each in value:
            yield from numbers(each)
