"""Communicators, what they are for, and who is a peer of whom."""

from __future__ import annotations

import pytest

from tracekit.derive.groups import groups


def one(make_run, runs, operation="all_reduce", *, ranks=8, **values):
    described = {"members": [0, 4], "sequence": 1} | values
    traces = {rank: runs.Trace() for rank in range(ranks)}
    traces[0].collective(0, 10, operation, **described)
    (row,) = groups(make_run(traces)).rows(named=True)
    return row


@pytest.mark.parametrize(
    ("description", "dimension"),
    [
        ("DATA_PARALLEL_GROUP", "data"),
        ("DATA_PARALLEL_GROUP_WITH_CP", "data"),
        ("mesh_dp_shard", "data"),
        ("TENSOR_MODEL_PARALLEL_GROUP", "tensor"),
        ("MODEL_PARALLEL_GROUP", "tensor"),
        ("mesh_tp", "tensor"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "pipeline"),
        ("CONTEXT_PARALLEL_GROUP", "context"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "expert"),
        ("EXPERT_DATA_PARALLEL_GROUP", "data"),
    ],
)
def test_what_a_group_is_called_says_its_dimension(make_run, runs, description, dimension):
    row = one(make_run, runs, group_description=description)
    assert (row["dimension"], row["is_inferred"]) == (dimension, False)


@pytest.mark.parametrize(
    ("operation", "members", "dimension"),
    [
        ("send", [0, 4], "pipeline"),
        ("all_to_all", [0, 1, 2, 3], "expert"),
        ("all_reduce", [0, 1, 2, 3], "tensor"),
        ("all_reduce", [0, 4], "data"),
        ("all_gather", [0, 1, 2, 3, 4, 5, 6, 7], "data"),
    ],
)
def test_else_what_it_does_and_where_its_members_lie(make_run, runs, operation, members, dimension):
    for called in (None, "default_pg"):
        row = one(make_run, runs, operation, members=members, group_description=called)
        assert (row["dimension"], row["is_inferred"]) == (dimension, True)


def test_of_a_group_without_members_nothing_is_known(make_run, runs):
    row = one(make_run, runs, members=None, group="7")
    assert (row["group"], row["dimension"], row["layout"]) == ("7", None, None)


def test_members_that_lie_equally_far_apart_have_one_layout(make_run, runs):
    layouts = [one(make_run, runs, members=m)["layout"] for m in ([0, 4], [3, 7], [0, 2, 4, 6])]
    assert layouts == ["4", "4", "2,2,2"]
