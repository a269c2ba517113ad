"""What experts take: products between two exchanges of a layer, or kernels of their name (µs)."""

from __future__ import annotations

import pytest

from tracekit.derive.expert_work import (
    expert_extra_ns,
    expert_layers,
    other_unevenness,
    stretches,
)

EXCHANGE, COUNTS, REDUCE = "all_to_all", "counts", "all_reduce"


def steps(trace, *events, n_steps=4, members=(0, 1), group="e"):
    """Steps of 1,000 µs with the events in a row: (kernel, µs), or a communication of 10 µs.

    `COUNTS` is an exchange of 8 bytes: how many tokens come.
    """
    for step in range(1, n_steps + 1):
        begins = 1_000 * step
        trace.step(step, begins, 1_000)
        for number, event in enumerate(events):
            launched = (1_000 * step + number, 0.5)
            if isinstance(event, tuple):
                trace.kernel(begins, event[1], event[0], launched=launched)
                begins += event[1]
                continue
            is_counts = event == COUNTS
            place = {"members": list(members), "group": group, "bytes_in": 8 if is_counts else 1024}
            place["sequence"] = len(trace.rows["collectives"])
            name = EXCHANGE if is_counts else event
            trace.collective(begins, 10, name, launched=launched, **place)
            begins += 10
    return trace


def layer(us, *, rest=30, kernel="gemm"):
    return ("elementwise", rest), EXCHANGE, (kernel, us), EXCHANGE


def job(runs, *layers_by_rank, ranks=(0, 1)):
    """A run's traces: for each rank its layers of a step."""
    return {
        rank: steps(runs.Trace(), *(event for part in layers for event in part), members=ranks)
        for rank, layers in zip(ranks, layers_by_rank, strict=True)
    }


def test_an_exchange_of_another_device_is_none_of_a_kernel_that_begins_with_it(make_run, trace):
    steps(trace, ("gemm", 20), EXCHANGE, ("gemm", 50), n_steps=1)
    trace.collective(1_000, 10, EXCHANGE, device=1, stream=7, members=[0, 1], bytes_in=1024)
    found = stretches(make_run(trace), 0).select("stretch", "n_exchanges", "compute_ns").collect()
    assert found.rows() == [(1, 1, 20_000), (2, 2, 50_000)]


def test_stretches_of_one_layer(make_run, trace):
    run = make_run(steps(trace, *layer(50), ("gemm", 20), ("norm", 5), n_steps=1))
    assert stretches(run, 0).collect().rows() == [
        (1, 0, 0, 0, 0, 0, 30_000),
        (1, 1, 1, 0, 0, 50_000, 50_000),
        (1, 2, 2, 0, 0, 20_000, 25_000),
    ]


def test_exchanges_of_counts_open_no_layer(make_run, trace):
    run = make_run(steps(trace, ("elementwise", 5), COUNTS, *layer(50), n_steps=1))
    rows = stretches(run, 0).select("n_exchanges", "compute_ns").collect().rows()
    assert rows == [(0, 5_000), (0, 30_000), (1, 50_000)]


def test_other_communication_between_exchanges_splits_the_work_alone(make_run, trace):
    events = (EXCHANGE, ("gemm", 50), REDUCE, ("gemm", 7), EXCHANGE, ("gemm", 3))
    rows = stretches(make_run(steps(trace, *events, n_steps=1)), 0).collect()
    assert rows["n_exchanges"].to_list() == [1, 1, 2]


def test_kernels_of_experts_are_counted_by_name(make_run, trace):
    run = make_run(steps(trace, *layer(50, kernel="grouped_gemm"), n_steps=1))
    assert stretches(run, 0).collect().row(1) == (1, 1, 1, 1, 50_000, 0, 50_000)


def test_layers_of_averaged_steps_by_rank(make_run, runs):
    traces = job(runs, [layer(50), layer(20)], [layer(40), layer(60)], ranks=(3, 8))
    rows = expert_layers(make_run(traces)).rows()
    assert rows == [
        row
        for step in (2, 3)
        for row in (
            (3, "e (2 ranks: 3, 8)", step, 1, 50_000),
            (8, "e (2 ranks: 3, 8)", step, 1, 40_000),
            (3, "e (2 ranks: 3, 8)", step, 3, 20_000),
            (8, "e (2 ranks: 3, 8)", step, 3, 60_000),
        )
    ]


def test_experts_by_name_that_differ_in_number_are_one_layer(make_run, runs):
    one, two = layer(50, kernel="moe_gemm"), layer(40, kernel="moe_gemm")
    rows = expert_layers(make_run(job(runs, [one], [two, two])))
    assert rows.filter(step=2).rows() == [
        (0, "e (2 ranks: 0–1)", 2, 0, 50_000),
        (1, "e (2 ranks: 0–1)", 2, 0, 80_000),
    ]


def test_a_rank_without_tokens_in_a_layer_has_none_of_it(make_run, runs):
    idle = ("elementwise", 30), EXCHANGE, EXCHANGE
    rows = expert_layers(make_run(job(runs, [layer(50), idle], [layer(40), layer(70)])))
    assert rows.filter(step=2, layer=3).rows() == [
        (0, "e (2 ranks: 0–1)", 2, 3, 0),
        (1, "e (2 ranks: 0–1)", 2, 3, 70_000),
    ]


@pytest.mark.parametrize(("share", "n_layers"), [(1.0, 1), (0.5, 0)])
def test_what_does_not_come_back_was_no_token(make_run, runs, share, n_layers):
    traces = job(runs, [layer(50)], [layer(40)])
    for trace in traces.values():
        for row in trace.rows["collectives"][::2]:
            row["bytes_in"] = round(row["bytes_in"] * share)
    assert expert_layers(make_run(traces)).filter(step=2, rank=0).height == n_layers


@pytest.mark.parametrize(("us", "n_layers"), [(30, 1), (29, 0)])
def test_what_lies_between_exchanges_is_experts_where_half_is_products(
    make_run, runs, us, n_layers
):
    part = (EXCHANGE, ("gemm", us), ("elementwise", 30), EXCHANGE)
    layers = expert_layers(make_run(job(runs, [part], [part])))
    assert layers.filter(rank=0, step=2).height == n_layers
    assert layers["expert_ns"].unique().to_list() == [60_000] * n_layers


def test_rows_of_embedding_tables_are_no_tokens(make_run, runs):
    part = layer(50, kernel="embedding_bag")
    assert expert_layers(make_run(job(runs, [part], [part]))).is_empty()


def test_how_uneven_all_else_is(make_run, runs):
    # the rest takes 40 and 20 µs: 40 over a mean of 30
    traces = job(runs, [layer(50, rest=40)], [layer(90, rest=20)])
    assert other_unevenness(make_run(traces)) == pytest.approx(1 / 3)
    assert other_unevenness(make_run({0: runs.Trace()})) == 0


def test_what_experts_of_a_rank_take_more_a_step(make_run, runs):
    run = make_run(job(runs, [layer(50), layer(20)], [layer(40), layer(60)]))
    # against the lower of both in each layer: rank 0 takes 10 more, rank 1 40 more
    assert expert_extra_ns(run, [0]) == 10_000
    assert expert_extra_ns(run, [1]) == expert_extra_ns(run, [0, 1]) == 40_000
    assert expert_extra_ns(run, []) == 0


@pytest.mark.parametrize("ranks", [(0,), (0, 1)])
def test_without_experts_or_events_there_are_no_layers(make_run, runs, ranks):
    empty = make_run({rank: runs.Trace() for rank in ranks})
    assert expert_layers(empty).is_empty()
    assert expert_extra_ns(empty, ranks) == 0
    alone = make_run({rank: steps(runs.Trace(), ("gemm", 50)) for rank in ranks})
    assert expert_layers(alone).is_empty()


def test_a_rank_without_any_event_is_left_out(make_run, runs):
    traces = job(runs, [layer(50)], [layer(40)]) | {2: runs.Trace()}
    assert expert_layers(make_run(traces))["rank"].unique().sort().to_list() == [0, 1]
