"""Jobs that a random search over the simulator found: replays that were off, savings with them.

Each job stands for a kind of mistake; the truth is the simulator's run of the job without its
fault.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

import tracekit
from tracekit.sample_traces.simulator.job import Faults, Job, Loader
from tracekit.sample_traces.simulator.recorded import recorded

STEPS = range(10, 19)


@pytest.fixture
def analysed(tmp_path):
    """What a job would save without its fault, in ns, and its result."""

    def analyse(job):
        saving_ns = recorded(job, tmp_path).saving_ns
        return saving_ns, tracekit.analyze(tmp_path, engine="local:1")

    return analyse


def savings(result):
    """Savings of what was found, by detector."""
    return {f.id: f.saving for f in result.findings if f.saving is not None}


def test_a_full_queue_may_wait_for_another_stream(analysed):
    # The host runs a thousand launches ahead, and messages hold the stream that it launches on up.
    job = Job(n_dp=1, n_pp=3, schedule="gpipe", n_layers=12, n_micro_batches=6, n_steps=7)
    job = replace(job, forward_ns=120_000, backward_ns=240_000, n_pieces=2, encoder_ns=120_000)
    job = replace(job, is_synced=False, loader=Loader(), optimizer_ns=72_000, seed=1)
    job = replace(job, faults=Faults(encoder_factor={(0, step): 3.0 for step in STEPS}))
    _, result = analysed(job)
    assert result.replay.error_share < 0.01


def test_kernels_that_a_rank_runs_more_often_do_not_shorten_its_experts(analysed):
    # Both are products of matrices, on either side of an exchange in which its peer waits.
    job = Job(n_dp=2, n_ep=2, n_layers=4, n_steps=5, faults=Faults(extra_kernels={1: 1}))
    saving_ns, result = analysed(job)
    assert savings(result)["straggler-rank"].replayed_ns == pytest.approx(saving_ns, rel=0.05)


def test_the_work_of_a_long_stage_goes_to_the_others_at_least_in_part(analysed):
    job = Job(n_dp=1, n_pp=4, schedule="gpipe", n_layers=8, n_micro_batches=4, n_steps=5)
    job = replace(job, encoder_ns=1_000_000)
    found = savings(analysed(job)[1])
    spans = [found[name].per_step_ns for name in ("straggler-rank", "stage-imbalance")]
    assert all(span.low < 0.8 * span.high for span in spans)
    assert spans[0].low == pytest.approx(spans[1].low, rel=0.05)


@pytest.mark.parametrize("n_metadata_syncs", [0, 1])
def test_what_a_replay_gains_lies_within_the_saving(analysed, n_metadata_syncs):
    # There is little to hide so much communication behind; stalls of the host bound its waits.
    job = Job(n_dp=2, n_tp=2, n_pp=2, n_ep=2, n_layers=4, n_micro_batches=2, n_steps=5)
    job = replace(job, forward_ns=120_000, backward_ns=240_000, expert_ns=48_000)
    faults = Faults(n_metadata_syncs=n_metadata_syncs)
    found = savings(analysed(replace(job, faults=faults))[1])
    replayed = [saving for saving in found.values() if saving.replayed_ns is not None]
    assert replayed
    for saving in replayed:
        assert saving.per_step_ns.low <= saving.replayed_ns <= saving.per_step_ns.high * 1.001
