"""Jobs that a random search over the simulator found: who was blamed wrongly, or not at all.

Each job stands for a kind of mistake; the seed is that of its draw. The truth is the simulator's
run of the same job without its fault.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

import tracekit
from tracekit.findings import Cause, Status
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.noise import varied
from tracekit.sample_traces.simulator.recorded import recorded

STEPS = range(10, 19)
HALF = Job(forward_ns=500_000, backward_ns=1_000_000, gradient_ns=250_000, optimizer_ns=300_000)


def each_step(rank, value):
    """The same for a rank in every step."""
    return {(rank, step): value for step in STEPS}


@pytest.fixture
def analysed(tmp_path):
    """What a job would save without its fault, in ns, and its findings by detector."""

    def analyse(job, **how):
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        saving_ns = recorded(job, folder, **how).saving_ns
        found = {}
        for finding in tracekit.analyze(folder, engine="local:1").findings:
            found.setdefault(finding.id, []).append(finding)
        return saving_ns, found

    return analyse


def named(findings):
    """Ranks and causes of what was found."""
    return [(f.ranks, f.cause) for f in findings if f.status is Status.FOUND]


def assert_holds(finding, saving_ns):
    low, high = finding.saving.per_step_ns.low, finding.saving.per_step_ns.high
    assert 0.9 * low <= saving_ns <= 1.1 * high


def test_the_partner_of_a_late_rank_in_its_expert_group_is_not_at_fault_with_it(analysed):
    # Rank 0 exchanges tokens with rank 1, waits for it there, and is late with it in all else.
    job = replace(HALF, n_dp=6, n_ep=2, n_layers=4, n_micro_batches=2, n_steps=5, seed=119)
    job = replace(job, encoder_ns=1_000_000, is_synced=False, noise=varied(2))
    job = replace(job, faults=Faults(encoder_factor=each_step(1, 3)))
    saving_ns, found = analysed(job, has_metadata=False)
    assert named(found["straggler-rank"]) == [((1,), Cause.MODALITY_IMBALANCE)]
    assert_holds(found["straggler-rank"][0], saving_ns)


def test_a_tensor_parallel_partner_is_not_blamed_for_jitter_in_many_small_calls(analysed):
    # Rank 4 waits for rank 5 in each layer, and is late in the few calls of its data group.
    job = replace(HALF, n_dp=4, n_tp=2, n_layers=8, n_buckets=2, is_synced=False, seed=211)
    faults = Faults(allocation_ns=each_step(5, 4_000_000), is_freeing=True)
    saving_ns, found = analysed(replace(job, noise=varied(2), faults=faults))
    assert named(found["straggler-rank"]) == [((5,), Cause.ALLOCATOR)]
    assert_holds(found["straggler-rank"][0], saving_ns)


def test_groups_without_names_are_told_by_their_members(analysed):
    # Data and tensor groups overlap: a meeting in the one is none of the other's members.
    job = replace(HALF, n_dp=2, n_tp=2, n_layers=4, n_micro_batches=2, seed=223)
    job = replace(job, noise=varied(0.5), faults=Faults(compute_factor={2: 1.15}))
    saving_ns, found = analysed(job, has_metadata=False)
    assert named(found["straggler-rank"]) == [((2,), Cause.SLOW_DEVICE)]
    assert_holds(found["straggler-rank"][0], saving_ns)


def test_lateness_that_a_rank_carries_over_the_step_has_the_cause_of_its_own_work(analysed):
    # The encoder's backward pass runs under the last bucket: the ranks never meet.
    job = Job(n_dp=8, n_layers=4, n_steps=5, encoder_ns=2_000_000, n_buckets=2, seed=156)
    job = replace(job, gradient_ns=500_000, faults=Faults(attention_factor=each_step(5, 2)))
    saving_ns, found = analysed(job, has_metadata=False)
    assert named(found["straggler-rank"]) == [((5,), Cause.SEQUENCE_LENGTH_IMBALANCE)]
    assert_holds(found["straggler-rank"][0], saving_ns)


def test_a_delay_before_the_steps_that_are_looked_at_blames_nobody(analysed):
    # The delay of the first step reaches into the second; each stage of its pipeline is late.
    job = replace(HALF, n_dp=2, n_pp=3, n_layers=6, n_micro_batches=4, n_steps=5, seed=134)
    job = replace(job, n_buckets=2, is_synced=False, activation_ns=75_000, noise=varied(2))
    faults = Faults(allocation_ns={(5, 10): 5_700_000})
    _, found = analysed(replace(job, faults=faults))
    (finding,) = found["straggler-rank"]
    assert (finding.ranks, finding.saving) == ((), None)


def test_stages_that_stall_at_once_cost_one_stall(analysed):
    # In each stage the ranks take turns, layer by layer: three times the same time.
    job = Job(n_dp=2, n_pp=3, n_ep=2, schedule="gpipe", n_layers=6, n_micro_batches=4, seed=245)
    job = replace(job, n_buckets=2, noise=varied(0.5), faults=Faults(hot_expert_factor=1.8))
    saving_ns, found = analysed(job)
    (finding,) = found["straggler-rank"]
    assert finding.cause is Cause.EXPERT_IMBALANCE
    assert 0.8 * saving_ns < finding.saving.per_step_ns.high < 1.1 * saving_ns
    assert_holds(found["expert-imbalance"][0], saving_ns)


@pytest.mark.parametrize("detector", ["sequence-length-imbalance", "load-imbalance"])
def test_of_two_ranks_the_longer_one_may_come_down_to_the_other(analysed, detector):
    # Their median is half way between both, and takes half of what is there to gain.
    turns = {(number % 2, step): 3.0 for number, step in enumerate(STEPS)}
    job = replace(HALF, n_dp=2, n_micro_batches=2, n_buckets=1, is_synced=False, seed=241)
    saving_ns, found = analysed(replace(job, faults=Faults(attention_factor=turns)))
    assert_holds(found[detector][0], saving_ns)


def test_what_a_rank_still_has_to_run_where_nobody_syncs_is_no_more_work(analysed):
    # Its peer ran as many kernels before both met in their tensor group.
    job = Job(n_dp=2, n_tp=2, n_layers=4, forward_ns=120_000, backward_ns=240_000, n_pieces=2)
    job = replace(job, gradient_ns=100_000, loader_ns=50_000, tensor_ns=20_000, seed=51)
    job = replace(job, is_synced=False, faults=Faults(call_factor={3: 8}))
    _, found = analysed(job)
    assert named(found["straggler-rank"]) == [((3,), Cause.SLOW_HOST)]


def test_a_slow_rank_of_two_makes_no_long_stage(analysed):
    job = replace(HALF, n_dp=1, n_tp=2, n_pp=2, schedule="gpipe", n_layers=4, seed=113)
    job = replace(job, n_micro_batches=4, faults=Faults(compute_factor={0: 1.3}))
    _, found = analysed(job)
    assert named(found["straggler-rank"]) == [((0,), Cause.SLOW_DEVICE)]
    assert named(found["stage-imbalance"]) == []


def test_a_host_that_holds_its_pipeline_up_may_save_all_that_it_takes_longer(analysed):
    job = replace(HALF, n_dp=1, n_pp=2, n_micro_batches=4, seed=226, noise=varied(0.5))
    job = replace(job, schedule="interleaved", n_chunks=2, activation_ns=75_000)
    faults = Faults(allocation_ns=each_step(0, 2_240_000))
    saving_ns, found = analysed(replace(job, faults=faults))
    assert named(found["straggler-rank"]) == [((0,), Cause.ALLOCATOR)]
    assert_holds(found["straggler-rank"][0], saving_ns)


def test_of_a_stage_only_the_rank_whose_host_stalls_is_named(analysed):
    # The others of its stage wait for it in their tensor, expert and data groups.
    job = Job(n_dp=2, n_tp=2, n_pp=2, n_ep=2, schedule="gpipe", n_layers=6, n_steps=7, seed=201)
    job = replace(job, noise=varied(0.5), faults=Faults(pause_ns={(3, 13): 11_200_000}))
    saving_ns, found = analysed(job)
    assert {ranks for ranks, _ in named(found["straggler-rank"])} <= {(3,)}
    for finding in found["straggler-rank"]:
        if finding.status is Status.FOUND:
            assert_holds(finding, saving_ns)


def test_longer_sequences_on_a_stage_of_one_rank_are_no_slow_device(analysed):
    job = replace(HALF, n_dp=1, n_pp=2, n_layers=4, n_micro_batches=6, loader_ns=50_000, seed=120)
    job = replace(job, faults=Faults(attention_factor=each_step(0, 2.5)))
    saving_ns, found = analysed(job)
    for detector in ("straggler-rank", "stage-imbalance"):
        assert named(found[detector]) == [((0,), Cause.SEQUENCE_LENGTH_IMBALANCE)]
        assert_holds(found[detector][0], saving_ns)


def test_hot_experts_save_at_least_what_the_others_leave_when_they_take_their_tokens(analysed):
    # Of two ranks one has 1.6 shares and the other 0.4: both come to 1, not to 0.4.
    job = replace(HALF, n_dp=4, n_ep=2, n_layers=6, n_buckets=2, loader_ns=50_000, seed=73)
    saving_ns, found = analysed(replace(job, faults=Faults(hot_expert_factor=1.6)))
    for detector in ("straggler-rank", "expert-imbalance"):
        assert_holds(found[detector][0], saving_ns)


def test_more_work_is_warned_of_where_no_trace_splits_the_waiting(analysed):
    # Messages without metadata: peers stand in them longer than the rank with more to do.
    job = replace(HALF, n_dp=1, n_pp=3, n_layers=6, n_micro_batches=4, loader_ns=50_000, seed=42)
    _, found = analysed(replace(job, faults=Faults(extra_kernels={1: 2})), has_metadata=False)
    (finding,) = found["load-imbalance"]
    assert (finding.ranks, finding.cause) == ((1,), Cause.DATA_IMBALANCE)
    assert finding.saving.per_step_ns.low > 0


def test_a_long_micro_batch_shows_where_the_host_runs_ahead(analysed):
    # The next step's first message is posted while the backward turns of this one still run.
    job = replace(HALF, n_dp=1, n_pp=4, schedule="gpipe", n_micro_batches=6, loader_ns=50_000)
    job = replace(job, is_synced=False, seed=63, faults=Faults(micro_batch_factor={3: 1.6}))
    _, found = analysed(job)
    assert [cause for _, cause in named(found["microbatch-imbalance"])] == [
        Cause.MICROBATCH_IMBALANCE
    ]


def test_experts_of_a_job_whose_host_runs_ahead_are_compared_layer_by_layer(analysed):
    # Messages of the next step open its window on the device while this one's experts still work.
    turns = {(2, 10): 1.9, (1, 11): 1.9, (0, 12): 1.9, (3, 13): 1.9, (2, 14): 1.9}
    job = replace(HALF, n_dp=2, n_pp=2, n_ep=2, schedule="gpipe", n_layers=4, n_micro_batches=4)
    job = replace(job, gradient_ns=1_000_000, n_buckets=2, is_synced=False, n_steps=5)
    job = replace(job, loader_ns=50_000, optimizer_ns=300_000, seed=2011)
    _, found = analysed(replace(job, noise=varied(1), faults=Faults(attention_factor=turns)))
    assert named(found["expert-imbalance"]) == []
