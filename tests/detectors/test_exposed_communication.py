"""`exposed-communication`: transfer that nothing hides, waiting taken out, both sides of limits."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tracekit
from tracekit.config import Config
from tracekit.detectors import detectors, findings_of
from tracekit.findings import Level, Severity, Status
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded


def finding_of(run, **limits):
    (found,) = findings_of(
        detectors()["exposed-communication"], run, Config({"exposed-communication": limits})
    )
    return found


def job(runs, *, transfer, hidden=0, wait=0, compute=300, n_ranks=2, n_steps=5):
    """Steps of 1,000 µs: compute, then a collective, `hidden` µs of it under compute."""
    traces = {rank: runs.Trace() for rank in range(n_ranks)}
    for rank, trace in traces.items():
        for step in range(1, n_steps + 1):
            at = 1000 * step
            trace.step(step, at, 1000)
            trace.kernel(at, compute, launched=(at, 1))
            own = wait if rank == 0 else 0
            enters = at + compute + wait - own
            trace.collective(
                enters, own + transfer, launched=(at + 1, 1), members=list(range(n_ranks))
            )
            trace.kernel(at + compute + wait, hidden, launched=(at + 2, 1), stream=8)
    return traces


def test_the_exposed_transfer_is_measured_and_the_saving_comes_down_to_the_limit(make_run, runs):
    found = finding_of(make_run(job(runs, transfer=250, hidden=50)))
    # 200 of 1,000 µs are exposed; down to 100, or all of it behind the exposed 300 µs of compute
    assert found.status is Status.FOUND
    assert found.measured.value == pytest.approx(0.2)
    assert found.saving.per_step_ns.low == pytest.approx(100_000)
    assert found.saving.per_step_ns.high == 200_000
    assert found.confidence.level is Level.MEDIUM


def test_no_more_can_hide_than_compute_is_exposed(make_run, runs):
    found = finding_of(make_run(job(runs, transfer=400, compute=120)))
    assert found.saving.per_step_ns.high == 120_000
    assert found.saving.per_step_ns.low == 120_000  # 400 − 100, bounded by the high end


@pytest.mark.parametrize(("transfer", "is_found"), [(100, True), (99, False)])
def test_the_limit_from_both_sides(make_run, runs, transfer, is_found):
    found = finding_of(make_run(job(runs, transfer=transfer)))
    assert (found.status is Status.FOUND) == is_found
    assert found.measured.value == pytest.approx(transfer / 1000)
    assert found.limit.value == 0.1


def test_waiting_for_a_late_rank_is_not_the_networks_fault(make_run, runs):
    found = finding_of(make_run(job(runs, transfer=50, wait=500)))
    assert found.status is Status.CLEAR
    assert found.measured.value == pytest.approx(0.05)


def test_what_cannot_be_split_counts_but_supports_no_saving(make_run, runs):
    found = finding_of(make_run(job(runs, transfer=300, n_ranks=1)))
    assert found.status is Status.FOUND
    assert found.measured.value == pytest.approx(0.3)
    assert found.saving is None
    assert found.confidence.level is Level.LOW


def test_hidden_communication_is_clear(make_run, runs):
    found = finding_of(make_run(job(runs, transfer=250, hidden=250)))
    assert (found.status, found.measured.value) == (Status.CLEAR, 0)


def test_without_collectives_it_is_skipped(make_run, trace):
    found = finding_of(make_run(trace.kernel(0, 10)))
    assert found.status is Status.SKIPPED
    assert "no collectives" in found.why


def test_what_a_late_rank_lays_bare_on_the_others_is_not_the_networks_saving(tmp_path):
    # Reductions of 12 ms hide behind backward, but not once the others have waited 20 ms.
    job = Job(n_steps=8, gradient_ns=12_000_000)
    loader_ns = {(1, step): 20_000_000 for step in job.steps}
    recorded(replace(job, faults=Faults(loader_ns=loader_ns)), tmp_path)
    result = tracekit.analyze(tmp_path, engine="local:1")
    (found,) = (each for each in result.findings if each.id == "exposed-communication")
    assert found.measured.value > 0.15
    assert found.saving.per_step_ns.low == 0
    assert {each.severity for each in result.findings if each.status is Status.FOUND} >= {
        Severity.CRITICAL
    }
