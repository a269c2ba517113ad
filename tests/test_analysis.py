"""The whole pipeline on the embedded capture: four real ranks, rank 2 with a slow data loader.

The loader of rank 2 sleeps 40 ms for each batch (examples/slow_input.py); the others do not sleep.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

import tracekit
from tracekit.analysis import limited
from tracekit.errors import UsageError
from tracekit.findings import Cause, Severity, Status
from tracekit.results import read_result, write_result
from tracekit.sample_traces import demo_traces


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with demo_traces() as traces:
        return tracekit.convert(traces, tmp_path_factory.mktemp("demo") / "run", engine="local:1")


@pytest.fixture(scope="module")
def result(run):
    return tracekit.analyze(run, engine="local:1")


def test_the_slow_loader_is_named_with_its_rank_and_saving(result):
    straggler = next(finding for finding in result.findings if finding.id == "straggler-rank")
    assert straggler.status is Status.FOUND
    assert straggler.severity is Severity.CRITICAL
    assert straggler.ranks == (2,)
    assert straggler.cause is Cause.INPUT_PIPELINE
    assert straggler.scope.victims == (0, 1, 3)
    saving = straggler.saving.per_step_ns
    assert saving.low > 30e6  # of the 40 ms that the loader sleeps
    assert saving.high == pytest.approx(40e6, rel=0.05)


def test_nobody_is_late_among_the_ranks_with_a_fast_loader(run):
    result = tracekit.analyze(run, ranks=(0, 1, 3), engine="local:1")
    straggler = next(finding for finding in result.findings if finding.id == "straggler-rank")
    assert straggler.status is Status.SKIPPED  # rank 2 is left out: the others may wait for it
    assert "without all their members" in straggler.why
    assert [facts.rank for facts in result.run.ranks] == [0, 1, 3]


def test_averages_leave_out_the_first_step_and_the_cut_one(result):
    assert result.run.steps == (2, 3, 4, 5, 6, 7, 8, 9)
    assert result.run.averaged_steps == (3, 4, 5, 6, 7, 8)
    assert result.run.step_source == "ProfilerStep"


def test_steps_can_be_chosen_by_the_traces_own_numbers(run):
    result = tracekit.analyze(run, steps=(4, 6), engine="local:1")
    assert result.run.averaged_steps == (4, 5)


def test_steps_that_do_not_exist_are_refused_with_those_that_do(run):
    with pytest.raises(UsageError, match="no step in 40:50") as caught:
        tracekit.analyze(run, steps=(40, 50), engine="local:1")
    assert "2 to 9" in caught.value.hint


def test_ranks_that_do_not_exist_are_refused_with_those_that_do(run):
    with pytest.raises(UsageError, match="no trace of rank 7") as caught:
        limited(run, None, (0, 7))
    assert "0, 1, 2, 3" in caught.value.hint


def test_the_parts_of_every_step_add_up(result):
    for parts in (*result.breakdown, *result.whole):
        assert parts.dur_ns == (
            parts.exposed_compute_ns
            + parts.overlapped_ns
            + parts.exposed_communication_ns
            + parts.exposed_copy_ns
            + parts.idle_ns
        )
        assert parts.exposed_communication_ns == (
            parts.exposed_waiting_ns + parts.exposed_transfer_ns + parts.unsplit_communication_ns
        )


def test_the_bars_of_the_efficiency_add_up_to_the_step(result):
    efficiency = result.efficiency
    bars = efficiency.mean_compute_ns + efficiency.imbalance_ns + efficiency.remainder_ns
    assert bars == pytest.approx(efficiency.step_ns, rel=1e-9)
    share = efficiency.load_balance_share * efficiency.communication_share
    assert share == pytest.approx(efficiency.mean_compute_ns / efficiency.step_ns, rel=1e-9)


def test_a_run_without_a_gpu_says_so(result):
    assert result.run.device_kind == "host thread"
    assert "no device events" in {remark.check for remark in result.quality}


def test_missing_ranks_are_named(run):
    manifest = replace(run.manifest, captures=run.manifest.captures[:2], missing_ranks=(2, 3))
    result = tracekit.analyze(replace(run, manifest=manifest), engine="local:1")
    remark = next(remark for remark in result.quality if remark.check == "missing ranks")
    assert remark.count == 2
    assert "2, 3" in remark.detail


def test_the_result_comes_back_from_its_file(result, tmp_path):
    write_result(result, tmp_path / "result.json")
    assert read_result(tmp_path / "result.json") == result


def test_the_order_of_files_changes_nothing(result, tmp_path):
    with demo_traces() as traces:
        files = sorted(traces.iterdir(), reverse=True)
        again = tracekit.analyze(files, folder=tmp_path / "run", engine="local:1")
    assert again.findings == result.findings
    assert again.breakdown == result.breakdown


def test_communication_with_a_rank_that_was_left_out_is_not_called_transfer(run):
    result = tracekit.analyze(run, ranks=(0, 1, 3), engine="local:1")
    assert {parts.exposed_transfer_ns for parts in result.whole} == {0}
    exposed = next(f for f in result.findings if f.id == "exposed-communication")
    assert exposed.severity is Severity.INFO
    remark = next(remark for remark in result.quality if remark.check == "missing ranks")
    assert "rank 2 not analysed" in remark.detail
