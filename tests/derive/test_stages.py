"""Stages of pipelines: ranks that exchange messages, in the order of their numbers."""

from __future__ import annotations

import pytest

from tracekit.derive.stages import MAX_PIPELINE, stages


def ranks_of(runs, ranks, **messages):
    """Traces with messages: receivers by rank (`send`), senders (`recv`), members (`group`)."""
    traces = {rank: runs.Trace().kernel(0, 10) for rank in ranks}
    for rank, peer in messages.get("send", {}).items():
        traces[rank].collective(10, 5, "send", destination_rank=peer, members=None)
    for rank, peer in messages.get("recv", {}).items():
        traces[rank].collective(20, 5, "recv", source_rank=peer, members=None)
    for rank, members in messages.get("group", {}).items():
        traces[rank].collective(30, 5, "send", members=members)
    return traces


def test_two_pipelines_of_three_stages(make_run, runs):
    send = {0: 2, 2: 4, 1: 3, 3: 5}
    rows = stages(make_run(ranks_of(runs, range(6), send=send))).rows()
    assert rows == [
        (0, 0, 0, 3),
        (1, 1, 0, 3),
        (2, 0, 1, 3),
        (3, 1, 1, 3),
        (4, 0, 2, 3),
        (5, 1, 2, 3),
    ]


@pytest.mark.parametrize(
    "messages",
    [
        {"send": {7: 12, 12: 30}},
        {"recv": {12: 7, 30: 12}},
        {"send": {7: 12}, "recv": {7: 12, 30: 7}},
        {"group": {7: [7, 12, 30], 12: [7, 12, 30]}},
    ],
)
def test_either_side_of_a_message_or_its_group_tells(make_run, runs, messages):
    run = make_run(ranks_of(runs, (7, 12, 30), **messages), world_size=64)
    assert stages(run).rows() == [(7, 7, 0, 3), (12, 7, 1, 3), (30, 7, 2, 3)]


def test_without_messages_every_rank_is_its_own(make_run, runs):
    traces = ranks_of(runs, (0, 5))
    for trace in traces.values():
        trace.collective(10, 5, members=[0, 5])
    assert stages(make_run(traces)).rows() == [(0, 0, 0, 1), (5, 5, 0, 1)]


def test_a_peer_that_was_not_recorded_is_no_stage(make_run, runs):
    # 1 is missing: 0 sends to it, and it to 2
    run = make_run(ranks_of(runs, (0, 2), send={0: 1}, recv={2: 1}), world_size=3)
    assert stages(run).rows() == [(0, 0, 0, 1), (2, 2, 0, 1)]


def test_a_message_to_oneself_or_to_nobody_known_links_none(make_run, runs):
    run = make_run(ranks_of(runs, (0, 1), send={0: 0}, group={1: None}))
    assert stages(run)["n_stages"].to_list() == [1, 1]


def test_a_group_as_large_as_the_job_says_nothing(make_run, runs):
    for size, n_stages in ((MAX_PIPELINE, 2), (MAX_PIPELINE + 1, 1)):
        run = make_run(ranks_of(runs, (0, 1), group={0: list(range(size))}))
        assert stages(run)["n_stages"].to_list() == [n_stages] * 2


def test_a_rank_without_events_has_a_place(make_run, runs):
    assert stages(make_run({0: runs.Trace(), 4: runs.Trace()})).rows() == [
        (0, 0, 0, 1),
        (4, 4, 0, 1),
    ]


def test_a_ring_is_no_pipeline_and_one_with_gradients_is(make_run, runs):
    send, recv = {0: 1, 1: 2, 2: 0}, {0: 2, 1: 0, 2: 1}
    ring = ranks_of(runs, range(3), send=send, recv=recv)
    assert stages(make_run(ring))["n_stages"].to_list() == [1, 1, 1]
    for rank, peer in recv.items():  # gradients go back to where activations came from
        ring[rank].collective(40, 5, "send", destination_rank=peer, members=None)
    assert stages(make_run(ring))["n_stages"].to_list() == [3, 3, 3]


def test_two_ranks_that_share_a_sequence_are_known_by_their_group(make_run, runs):
    traces = ranks_of(runs, range(2), send={0: 1, 1: 0}, recv={0: 1, 1: 0})
    assert stages(make_run(traces))["n_stages"].to_list() == [2, 2]
    for trace in traces.values():
        for row in trace.rows["collectives"]:
            row["group_description"] = "CONTEXT_PARALLEL_GROUP"
    assert stages(make_run(traces))["n_stages"].to_list() == [1, 1]
