"""Simulated jobs against closed formulas: schedules, loaders, experts, noise."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from tracekit.sample_traces.simulator.engine import simulate
from tracekit.sample_traces.simulator.job import Faults, Job, Loader, groups
from tracekit.sample_traces.simulator.layers import layer
from tracekit.sample_traces.simulator.noise import NONE, Noise
from tracekit.sample_traces.simulator.operations import Begin, Collective, Graph, Kernel
from tracekit.sample_traces.simulator.recorded import mean_step_ns
from tracekit.sample_traces.simulator.schedules import turns
from tracekit.sample_traces.simulator.training import MAIN, programs

QUIET = {"noise": NONE, "call_ns": 100, "loader_ns": 0, "optimizer_ns": 4_000}
"""A job whose hosts cost next to nothing."""


def step_ns(job):
    return mean_step_ns(simulate(programs(job)))


@pytest.mark.parametrize(
    ("schedule", "n_pp", "n_chunks", "n_micro_batches"),
    [
        ("gpipe", 2, 1, 4),
        ("gpipe", 4, 1, 8),
        ("1f1b", 2, 1, 4),
        ("1f1b", 4, 1, 8),
        ("1f1b", 4, 1, 2),
        ("interleaved", 2, 2, 4),
        ("interleaved", 4, 2, 8),
    ],
)
def test_a_pipeline_has_the_bubble_of_its_schedule(schedule, n_pp, n_chunks, n_micro_batches):
    # share of the bubble: (p − 1) / (m + p − 1), interleaved (p − 1) / (v·m + p − 1)
    job = Job(
        n_dp=1,
        n_pp=n_pp,
        n_chunks=n_chunks,
        schedule=schedule,
        n_micro_batches=n_micro_batches,
        activation_ns=1_000,
        **QUIET,
    )
    work_ns = n_micro_batches * job.n_layers / n_pp * (job.forward_ns + job.backward_ns)
    bubble_share = (n_pp - 1) / (n_chunks * n_micro_batches + n_pp - 1)
    # The rest are copies of batches (0.4 ms a step), gaps between kernels and the optimizer.
    assert step_ns(job) == pytest.approx(work_ns / (1 - bubble_share) + 0.6e6, rel=0.01)


def test_a_stage_of_1f1b_alternates_after_its_warm_up():
    order = turns(Job(n_dp=1, n_pp=2, n_micro_batches=3), 0)
    assert [(is_forward, m) for is_forward, m, _ in order] == [
        (True, 0), (True, 1), (False, 0), (True, 2), (False, 1), (False, 2)
    ]  # fmt: skip


def test_chunks_interleave_by_rounds_of_as_many_micro_batches_as_stages():
    job = Job(n_dp=1, n_pp=2, n_chunks=2, schedule="interleaved", n_micro_batches=4)
    order = turns(job, 0)
    assert [(m, c) for is_forward, m, c in order if is_forward] == [
        (0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (3, 0), (2, 1), (3, 1)
    ]  # fmt: skip
    assert [(m, c) for is_forward, m, c in order if not is_forward][:4] == [
        (0, 1), (1, 1), (0, 0), (1, 0)
    ]  # fmt: skip
    assert sum(is_forward for is_forward, *_ in order[:4]) == 4  # 2·1 + (2 − 1)·2 warm up


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ({"n_dp": 4, "n_ep": 3}, "expert"),
        ({"n_layers": 8, "n_pp": 3}, "layers"),
        ({"n_chunks": 2}, "interleaved"),
        ({"n_pp": 2, "n_chunks": 2, "schedule": "interleaved", "n_micro_batches": 3}, "multiples"),
    ],
)
def test_a_layout_that_does_not_divide_is_refused(layout, message):
    with pytest.raises(ValueError, match=message):
        Job(**layout)


def test_tokens_go_to_experts_and_back_in_each_layer_and_pass():
    job = Job(n_dp=4, n_ep=2, n_steps=2, n_layers=2, **QUIET)
    experts = [group.members for group in groups(job) if "EXPERT" in group.purpose]
    assert experts == [(0, 1), (2, 3)]
    (happened, *_) = simulate(programs(job)).values()
    exchanges = [
        event
        for event in happened
        if isinstance(event.operation, Collective)
        and event.operation.operation == "all_to_all"
        and event.stream is not None
    ]
    assert len(exchanges) == 2 * 2 * 2 * 2  # steps, layers, passes, there and back


def test_a_hot_expert_makes_its_group_wait():
    fair = Job(n_dp=4, n_ep=4, **QUIET)
    hot = Job(n_dp=4, n_ep=4, faults=Faults(expert_factor={2: 1.5}), **QUIET)
    # half of 0.4 ms forward and 0.8 ms backward more, in each of 8 layers
    assert step_ns(hot) - step_ns(fair) == pytest.approx(8 * 0.6e6, rel=0.01)


def waits_ns(job):
    """How long the training thread of rank 0 waited for each batch."""
    (happened, *_) = simulate(programs(job)).values()
    return [
        event.end_ns - event.start_ns
        for event in happened
        if isinstance(event.operation, Begin)
        and event.thread == MAIN
        and "__next__" in event.operation.name
    ]


def test_workers_that_are_too_slow_make_every_nth_step_wait():
    # Steps of 25 ms, four workers: 100 ms a round against 160 ms a batch.
    loader = Loader(n_workers=4, load_ns=160_000_000, pin_ns=0)
    waits = waits_ns(Job(n_dp=1, n_steps=16, loader=loader, **QUIET))
    stalled = [number for number, wait in enumerate(waits) if wait > 10_000_000]
    assert stalled == [0, 4, 8, 12]


def test_workers_that_are_fast_enough_make_only_the_first_step_wait():
    waits = waits_ns(Job(n_dp=1, n_steps=12, loader=Loader(load_ns=60_000_000), **QUIET))
    assert [number for number, wait in enumerate(waits) if wait > 1_000_000] == [0]


def test_workers_started_anew_make_the_first_step_of_each_epoch_wait():
    loader = Loader(load_ns=20_000_000, steps_per_epoch=4, startup_ns=200_000_000)
    waits = waits_ns(Job(n_dp=1, n_steps=12, loader=loader, **QUIET))
    # the call that meets the end of an epoch comes before the one that starts the next
    assert [number for number, wait in enumerate(waits) if wait > 100_000_000] == [0, 5, 10]


def test_a_graph_runs_the_kernels_that_a_layer_would():
    def kernels(job):
        (happened,) = simulate(programs(job)).values()
        return sum(isinstance(e.operation, Kernel) and e.stream is not None for e in happened)

    plain, graphed = (Job(n_dp=1, is_graphed=graphed, **QUIET) for graphed in (False, True))
    assert kernels(plain) == kernels(graphed)
    assert any(isinstance(e.operation, Graph) for e in simulate(programs(graphed))[0])


def test_noise_has_the_spread_that_it_is_given():
    def quantiles(nominal_ns):
        draws = [Noise().kernel_ns(random.Random(n), nominal_ns) / nominal_ns for n in range(9_000)]
        return statistics.quantiles(draws, n=100)

    long, short = quantiles(1e6), quantiles(5e3)
    assert long[49] == pytest.approx(1, abs=0.001)
    assert (long[9], long[89]) == (pytest.approx(0.989, abs=0.002), pytest.approx(1.011, abs=0.002))
    assert (short[9], short[89]) == (pytest.approx(0.93, abs=0.01), pytest.approx(1.07, abs=0.01))
    assert short[98] > 1.3  # a heavy tail, as on real devices
    assert NONE.kernel_ns(random.Random(1), 5e3) == 5_000


def test_kernels_of_a_layer_are_as_unlike_as_on_real_devices_and_add_up_to_it():
    job = Job(n_dp=1, n_pieces=32, forward_ns=32_000_000, **QUIET)
    kernels = [
        operation.dur_ns
        for operation in layer(job, 0, random.Random(1), "forward", job.forward_ns)
        if isinstance(operation, Kernel)
    ]
    assert len(kernels) == 4 * 32
    assert sum(kernels) == pytest.approx(32_000_000, rel=0.001)
    assert statistics.stdev(math.log(dur_ns) for dur_ns in kernels) == pytest.approx(1.35, abs=0.15)
