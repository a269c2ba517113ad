"""Savings by replay: what they need, what they leave alone, and what a fault in them costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tracekit
from tracekit.detectors import detectors
from tracekit.findings import Severity, Status
from tracekit.sample_traces import scenarios
from tracekit.savings import replayed
from tracekit.what_if.job import job


@pytest.fixture(scope="module")
def slow_device(tmp_path_factory):
    """The run of the scenario with a slow rank, and the saving that was planted, ns."""
    folder = tmp_path_factory.mktemp("slow")
    (folder / "traces").mkdir()
    truth = scenarios()["slow-device"].build(folder / "traces", 1, 1.0)
    run = tracekit.convert(folder / "traces", folder / "run", engine="local:1")
    return run, truth.findings[0].saving_ns


def straggler(result):
    return next(f for f in result.findings if f.id == "straggler-rank")


def test_the_saving_of_a_slow_rank_is_the_truth_to_two_per_cent(slow_device):
    run, truth_ns = slow_device
    saving = straggler(tracekit.analyze(run, engine="local:1")).saving
    assert saving.replayed_ns == pytest.approx(truth_ns, rel=0.02)
    assert saving.per_step_ns.low <= saving.replayed_ns <= saving.per_step_ns.high
    assert saving.assumes.endswith("replayed over all ranks")


def test_the_rank_alone_would_gain_no_less(slow_device):
    saving = straggler(tracekit.analyze(slow_device[0], engine="local:1")).saving
    assert saving.alone_ns >= 0.9 * saving.replayed_ns


def unsure(finding):
    """The finding with a low end of nothing: its detector is not sure."""
    span = replace(finding.saving.per_step_ns, low=0.0)
    return replace(finding, saving=replace(finding.saving, per_step_ns=span, share=0.0))


def test_a_finding_that_its_detector_is_not_sure_of_gets_no_louder(slow_device):
    run, _ = slow_device
    finding = unsure(straggler(tracekit.analyze(run, engine="local:1")))
    (again,) = replayed(run, (finding,), detectors())
    assert (again.saving.per_step_ns.low, again.saving.share) == (0.0, 0.0)


def test_a_cure_that_fails_leaves_the_finding_as_it_was(slow_device):
    def fails(_changes, _run, _finding):
        raise RuntimeError("no")

    run, _ = slow_device
    finding = straggler(tracekit.analyze(run, engine="local:1"))
    known = {finding.id: replace(detectors()[finding.id], cure=fails)}
    assert replayed(run, (finding,), known) == (finding,)


def test_where_launches_are_cut_off_the_detectors_own_figure_stands(slow_device, monkeypatch):
    run, _ = slow_device
    finding = straggler(tracekit.analyze(run, engine="local:1"))
    pinned = replace(job(run), launched_share=0.9)
    monkeypatch.setattr("tracekit.savings.job", lambda _: pinned)
    assert replayed(run, (finding,), detectors()) == (finding,)


def test_a_replay_that_misses_the_step_gives_no_saving(slow_device, monkeypatch):
    run, _ = slow_device
    finding = straggler(tracekit.analyze(run, engine="local:1"))
    good = job(run)
    off = replace(good, steps=good.steps.with_columns(dur_ns=good.steps["dur_ns"] * 2))
    monkeypatch.setattr("tracekit.savings.job", lambda _: off)
    assert replayed(run, (finding,), detectors()) == (finding,)


def test_a_replay_that_cannot_be_made_costs_no_finding(slow_device, monkeypatch):
    def fails(_run):
        raise ValueError("a circle")

    monkeypatch.setattr("tracekit.savings.job", fails)
    monkeypatch.setattr("tracekit.analysis.asked", fails)
    result = tracekit.analyze(slow_device[0], engine="local:1")
    found = straggler(result)
    assert (found.status, found.severity) == (Status.FOUND, Severity.CRITICAL)
    assert (result.what_if, result.replay, found.saving.replayed_ns) == (None, None, None)
