"""Every scenario against every detector: what is planted is found, and nothing on healthy twins."""

from __future__ import annotations

import pytest

import tracekit
from tracekit.detectors import detectors
from tracekit.findings import Severity, Status
from tracekit.sample_traces import OF_DUMPS, scenarios

SEEDS = (1, 2)
TOLERANCE = 0.1
"""Savings agree with the simulator's run without the fault to a tenth."""


NOT_IN_EVERY_JOB = {
    "collective-count-mismatch",
    "context-parallel-waste",
    "expert-imbalance",
    "garbage-collection",
    "imbalanced-all-to-all",
    "late-sender",
    "microbatch-imbalance",
    "modality-imbalance",
    "network-tail",
    "redundant-gradient-sync",
    "serialized-communication",
    "slow-group",
    "slow-link",
    "small-collectives",
    "stage-imbalance",
}
"""Skipped where a job has no experts, pipeline, encoder, collections, peers or micro-batches."""


OF_LOGS = {"low-bus-bandwidth", "nccl-limits", "slow-communicator-init", "slow-transport"}
"""What looks at NCCL's log or output of nccl-tests, which few jobs have."""

OF_CALLS = {"late-in-calls", "ranks-behind"}
"""What is asked where calls were recorded without steps."""


def loud(result):
    """Findings above info."""
    return [
        finding
        for finding in result.findings
        if finding.status is Status.FOUND and finding.severity is not Severity.INFO
    ]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("scenario", scenarios().values(), ids=scenarios())
def test_what_is_planted_is_found(scenario, seed, tmp_path):
    truth = scenario.build(tmp_path, seed, 1.0)
    result = tracekit.analyze(tmp_path, engine="local:1")
    warned = [planted for planted in truth.findings if not planted.is_note]
    for planted in truth.findings:
        among = result.findings if planted.is_note else loud(result)
        (finding,) = (each for each in among if each.id == planted.id)  # and nobody else
        assert (finding.severity is Severity.INFO) == planted.is_note
        assert finding.cause is planted.cause
        assert finding.ranks == planted.ranks or not planted.ranks
        if planted.saving_ns is not None:
            saving = finding.saving.per_step_ns
            assert saving.low * (1 - TOLERANCE) <= planted.saving_ns
            assert planted.saving_ns <= saving.high * (1 + TOLERANCE)
    assert {finding.id for finding in loud(result)} == {each.id for each in warned}
    skipped = {finding.id for finding in result.findings if finding.status is Status.SKIPPED}
    if truth.only:
        assert skipped == set(detectors()) - set(truth.only)
    else:
        others = NOT_IN_EVERY_JOB | OF_LOGS | OF_CALLS | set(OF_DUMPS)
        assert skipped - others == set(truth.skipped)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("scenario", scenarios().values(), ids=scenarios())
def test_its_healthy_twin_is_silent(scenario, seed, tmp_path):
    truth = scenario.build(tmp_path, seed, 0.0)
    assert truth.findings == ()
    result = tracekit.analyze(tmp_path, engine="local:1")
    assert loud(result) == []
    assert not [finding for finding in result.findings if finding.status is Status.FAILED]


@pytest.mark.parametrize("scenario", scenarios().values(), ids=scenarios())
def test_the_same_seed_draws_the_same_traces(scenario, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    assert scenario.build(one, 3, 1.0) == scenario.build(two, 3, 1.0)
    assert [(file.name, file.read_bytes()) for file in sorted(one.iterdir())] == [
        (file.name, file.read_bytes()) for file in sorted(two.iterdir())
    ]


def test_every_detector_has_a_scenario_that_plants_it(tmp_path):
    planted = set()
    for name, scenario in scenarios().items():
        folder = tmp_path / name
        folder.mkdir()
        planted |= {finding.id for finding in scenario.build(folder, 1, 1.0).findings}
    assert planted == set(detectors())


def test_a_steps_time_and_its_transfers_add_up(tmp_path):
    # Four layers of 1 ms forward and 2 ms backward, 0.6 ms optimizer: at least 12.6 ms of compute.
    from tracekit.sample_traces.simulator.job import Job  # noqa: PLC0415
    from tracekit.sample_traces.simulator.noise import NONE  # noqa: PLC0415
    from tracekit.sample_traces.simulator.recorded import recorded  # noqa: PLC0415

    job = Job(n_dp=2, n_layers=4, noise=NONE)
    steps = recorded(job, tmp_path)
    assert steps.saving_ns == 0
    assert 12.6e6 < steps.step_ns < 14.5e6
    result = tracekit.analyze(tmp_path, engine="local:1")
    assert result.efficiency.mean_compute_ns == pytest.approx(12.6e6, rel=0.001)
