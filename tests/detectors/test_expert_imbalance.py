"""`expert-imbalance`: layers that wait for the rank with most tokens; steps of 1,000 µs."""

from __future__ import annotations

import pytest

from tracekit.findings import Cause, Level, Status

NAME = "expert-imbalance"
LAYER_US, N_LAYERS = 250, 4


@pytest.fixture
def experts(runs):
    """Four layers a step: other work, an exchange, experts for `tokens(rank, layer)` µs, another.

    All enter experts at 90 µs and leave the second exchange at 240. `products` is the name of their
    kernels, `other` the length of other work by rank.
    """

    def traces_of(
        tokens,
        *,
        other=None,
        products="gemm",
        ranks=range(4),
        groups=None,
        n_steps=5,
        bytes_in=1024,
    ):
        groups = groups or [list(ranks)]
        traces = {rank: runs.Trace() for rank in ranks}
        for members in groups:
            for rank in members:
                trace = traces[rank]
                place = {"members": members, "group": str(members[0]), "bytes_in": bytes_in}
                for step in range(1, n_steps + 1):
                    trace.step(step, 1_000 * step, 1_000)
                    for layer in range(N_LAYERS):
                        at = 1_000 * step + LAYER_US * layer
                        launched = (1_000 * step + layer, 0.5)
                        rest, own = (other or {}).get(rank, 40), tokens(rank, layer)
                        trace.kernel(at, rest, "elementwise", launched=launched)
                        trace.collective(at + rest, 90 - rest, "all_to_all", **place)
                        trace.kernel(at + 90, own, products)
                        trace.collective(at + 90 + own, 150 - own, "all_to_all", **place)
        return traces

    return traces_of


def hot(rank_hot, us, usual=60):
    return lambda rank, _layer: us if rank == rank_hot else usual


def test_another_rank_is_hot_in_every_layer_with_exact_excess_and_saving(
    make_run, experts, finding_of
):
    run = make_run(experts(lambda rank, layer: 120 if rank == layer else 60))
    found = finding_of(NAME, run)
    # in each of four layers 120 µs, 75 on the mean rank and 60 on the median one
    assert (found.status, found.cause) == (Status.FOUND, Cause.EXPERT_IMBALANCE)
    assert (found.ranks, found.groups) == ((0, 1, 2, 3), ("0 (4 ranks: 0–3)",))
    assert found.measured.value == pytest.approx(0.18)
    assert found.saving.per_step_ns.low == pytest.approx(180_000)  # each waits in three layers
    assert found.saving.per_step_ns.high == pytest.approx(240_000)
    assert found.title == "The busiest experts cost 180 µs of each step"
    assert found.why == (
        "the longest rank of a layer computes 60.0 % longer than the mean, 45 µs in each of 4 "
        "layers a step"
    )
    assert found.evidence[0].rows == tuple((rank, 300_000, 3) for rank in range(4))
    assert found.evidence[1].rows[0] == (2, 1, 0, 120_000, 75_000)


@pytest.mark.parametrize(("extra", "is_found"), [(7, True), (6, False)])
def test_the_share_of_the_step_from_both_sides(make_run, experts, finding_of, extra, is_found):
    # four layers of three quarters of 7 µs are 21, of 6 they are 18; the limit is 20
    found = finding_of(NAME, make_run(experts(hot(1, 20 + extra, 20))))
    assert (found.status is Status.FOUND) == is_found
    assert found.measured.value == pytest.approx(4 * 0.75 * extra / 1_000)


@pytest.mark.parametrize(("extra", "is_found"), [(14, True), (13, False)])
def test_the_unevenness_from_both_sides(make_run, experts, finding_of, extra, is_found):
    # 10.5 µs over a mean of 103.5 are 10.1 %, 9.75 over 103.25 are 9.4 %
    found = finding_of(NAME, make_run(experts(hot(1, 100 + extra, 100))))
    assert (found.status is Status.FOUND) == is_found


@pytest.mark.parametrize(("extra", "is_found"), [(17, True), (18, False)])
def test_other_work_that_is_uneven_too_from_both_sides(
    make_run, experts, finding_of, extra, is_found
):
    # experts are 60 % over their mean, the rest 12.75 µs over 44.25 (28.8 %), 13.5 over 44.5 (30.3)
    found = finding_of(NAME, make_run(experts(hot(3, 120), other={3: 40 + extra})))
    assert (found.status is Status.FOUND) == is_found


def test_a_device_slow_in_everything_has_no_hot_experts(make_run, experts, finding_of):
    assert finding_of(NAME, make_run(experts(hot(3, 120), other={3: 80}))).status is Status.CLEAR


def test_even_experts_are_clear(make_run, experts, finding_of):
    found = finding_of(NAME, make_run(experts(hot(0, 60))))
    assert (found.status, found.measured.value) == (Status.CLEAR, 0)


def test_a_rank_is_at_fault_where_it_is_longest_in_a_quarter_of_the_layers(
    make_run, experts, finding_of
):
    run = make_run(experts(lambda rank, layer: 120 if (rank, layer) == (3, 2) else 60))
    found = finding_of(NAME, run)
    assert (found.status, found.ranks) == (Status.FOUND, (3,))  # no layer of equals names rank 0


def test_experts_are_known_by_name_too(make_run, experts, finding_of):
    found = finding_of(NAME, make_run(experts(hot(2, 120), products="moe_gemm")))
    assert (found.status, found.ranks) == (Status.FOUND, (2,))
    assert found.measured.value == pytest.approx(0.18)


def test_of_several_groups_the_one_that_loses_most_is_named(make_run, experts, finding_of):
    found = finding_of(
        NAME, make_run(experts(hot(7, 120), ranks=(1, 4, 7, 9), groups=[[1, 4], [7, 9]]))
    )
    assert (found.ranks, found.groups) == ((7,), ("7 (2 ranks: 7, 9)",))
    assert found.measured.value == pytest.approx(0.12)  # four layers of 120 − 90 µs


def test_rows_of_embedding_tables_are_no_tokens(make_run, experts, finding_of):
    found = finding_of(NAME, make_run(experts(hot(3, 120), products="embedding_bag")))
    assert found.status is Status.SKIPPED
    assert found.why.startswith("ranks exchange no tokens, or run nothing between two exchanges")


@pytest.mark.parametrize(("extra", "is_found"), [(37, True), (36, False)])
def test_threads_that_stand_for_devices_may_differ_more(
    make_run, runs, finding_of, extra, is_found
):
    traces = {rank: runs.Trace() for rank in range(4)}
    for rank, trace in traces.items():
        own = 100 + (extra if rank == 2 else 0)
        for step in range(1, 6):
            at = 1_000 * step
            trace.step(step, at, 1_000).op(at, 100, "aten::gelu")
            trace.gloo(at + 100, 50, "all_to_all", members=range(4))
            trace.op(at + 150, own, "aten::mm")
            trace.gloo(at + 150 + own, 500 - own, "all_to_all", members=range(4))
    # 27.75 µs over a mean of 109.25 are 25.4 %, 27 over 109 are 24.8 %; the limit is 25 %
    found = finding_of(NAME, make_run(traces))
    assert (found.status is Status.FOUND) == is_found


def test_one_step_makes_it_unsure(make_run, experts, finding_of):
    found = finding_of(NAME, make_run(experts(hot(3, 120), n_steps=2)))
    assert (found.status, found.confidence.level) == (Status.FOUND, Level.LOW)


def test_a_job_without_exchanges_is_skipped(make_run, job, finding_of):
    found = finding_of(NAME, make_run(job(lambda *_: [("gemm", 400)])))
    assert found.status is Status.SKIPPED
    assert "no experts seen. Record the same steps on all ranks" in found.why


def test_without_collectives_or_with_one_rank_it_is_skipped(make_run, experts, runs, finding_of):
    assert "no collectives" in finding_of(NAME, make_run({0: runs.Trace(), 1: runs.Trace()})).why
    assert finding_of(NAME, make_run(experts(hot(0, 60), ranks=(0,)))).why.startswith("one rank")
