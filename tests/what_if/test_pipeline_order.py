"""What waits for what in a pipeline step, on steps small enough to work out by hand."""

from __future__ import annotations

import pytest

from tracekit.errors import InputError
from tracekit.what_if.pipeline_order import Op, pipeline_order


class Step:
    """One step of one worker a stage; operations are named by their type, number and stage."""

    def __init__(self):
        self.ops = []
        self.names = []

    def op(self, stage, kind, start_ms, end_ms, *, chunk=0, model_chunk=None):
        sequence = sum(op.stage == stage and op.type == kind for op in self.ops)
        start_ns, end_ns = round(start_ms * 1e6), round(end_ms * 1e6)
        chunks = (chunk, stage if model_chunk is None else model_chunk)
        self.ops.append(Op(len(self.ops), stage, kind, sequence, start_ns, end_ns, *chunks))
        self.names.append(f"{kind} {sequence} of {stage}")
        return self

    def waits(self):
        order = pipeline_order(self.ops)
        return {
            name: {self.names[i] for i in earlier}
            for name, earlier in zip(self.names, order.waits_for, strict=True)
        }

    def groups(self):
        order = pipeline_order(self.ops)
        return {
            frozenset(self.names[i] for i in group): is_across
            for group, is_across in zip(order.groups, order.is_across, strict=True)
        }


def two_stages():
    """One micro-batch goes forward through two stages and back."""
    return (
        Step()
        .op(0, "params-all-gather", 0, 1)
        .op(0, "forward-compute", 1, 2)
        .op(0, "forward-send", 2, 3)
        .op(1, "params-all-gather", 0, 1)
        .op(1, "forward-recv", 1, 3)
        .op(1, "forward-compute", 3, 4)
        .op(1, "backward-compute", 4, 6)
        .op(1, "backward-send", 6, 7)
        .op(0, "backward-recv", 2, 7)
        .op(0, "backward-compute", 7, 9)
        .op(0, "grads-reduce-scatter", 9, 10)
        .op(1, "grads-reduce-scatter", 6, 10)
        .op(0, "optimizer-clip-main-grad", 10, 11)
        .op(1, "optimizer-clip-main-grad", 10, 11)
        .op(0, "optimizer", 11, 12)
        .op(1, "optimizer", 11, 12)
    )


def test_parameters_come_before_the_first_forward_and_messages_around_compute():
    waits = two_stages().waits()
    assert waits["forward-compute 0 of 0"] == {"params-all-gather 0 of 0"}
    assert waits["forward-send 0 of 0"] == {"forward-compute 0 of 0"}
    assert waits["forward-compute 0 of 1"] == {"forward-recv 0 of 1", "params-all-gather 0 of 1"}
    assert waits["backward-compute 0 of 0"] == {"backward-recv 0 of 0", "forward-compute 0 of 0"}


def test_the_end_of_the_step_is_a_chain():
    waits = two_stages().waits()
    assert waits["grads-reduce-scatter 0 of 0"] == {
        "params-all-gather 0 of 0",  # on the same stream before it
        "backward-compute 0 of 0",
    }
    assert waits["optimizer-clip-main-grad 0 of 0"] == {"grads-reduce-scatter 0 of 0"}
    assert waits["optimizer 0 of 0"] == {"optimizer-clip-main-grad 0 of 0"}


def test_both_ends_of_a_message_meet_and_collectives_of_replicas_do_across():
    groups = two_stages().groups()
    assert groups[frozenset({"forward-send 0 of 0", "forward-recv 0 of 1"})] is False
    assert groups[frozenset({"backward-send 0 of 1", "backward-recv 0 of 0"})] is False
    assert groups[frozenset({"grads-reduce-scatter 0 of 0"})] is True
    clips = frozenset({"optimizer-clip-main-grad 0 of 0", "optimizer-clip-main-grad 0 of 1"})
    assert groups[clips] is True


def test_the_first_backward_message_waits_for_the_forward_before_the_last_of_the_warm_up():
    step = Step()
    for number in range(2):
        step.op(0, "forward-compute", number, number + 1)
        step.op(0, "forward-send", number + 1, number + 1.5)
        step.op(1, "forward-recv", number, number + 1.5)
    step.op(1, "forward-compute", 1.5, 2).op(1, "backward-compute", 2, 3)
    step.op(1, "forward-compute", 3, 4).op(1, "backward-compute", 4, 5)
    for number in range(2):
        step.op(1, "backward-send", 3 + 2 * number, 4 + 2 * number)
        step.op(0, "backward-recv", 2 + 2 * number, 4 + 2 * number)
        step.op(0, "backward-compute", 4 + 2 * number, 6 + 2 * number)
    waits = step.waits()
    assert waits["backward-recv 0 of 0"] == {"forward-compute 0 of 0"}
    assert waits["backward-recv 1 of 0"] == {"backward-recv 0 of 0", "backward-compute 0 of 0"}


def test_messages_that_moved_nothing_are_left_alone():
    step = two_stages().op(1, "forward-recv", 11, 12)  # posted after the last compute
    waits, groups = step.waits(), step.groups()
    assert waits["forward-recv 1 of 1"] == {"forward-recv 0 of 1"}
    assert frozenset({"forward-recv 1 of 1"}) in groups


def test_gradients_that_are_reduced_while_computing_wait_for_their_chunk_alone():
    step = Step().op(0, "forward-compute", 0, 1, chunk=0).op(0, "forward-compute", 1, 2, chunk=1)
    step.op(0, "backward-compute", 2, 3, chunk=1).op(0, "grads-reduce-scatter", 3, 4, chunk=1)
    step.op(0, "backward-compute", 3, 5, chunk=0).op(0, "grads-reduce-scatter", 5, 6, chunk=0)
    step.op(0, "layernorm-grads-all-reduce", 6, 7).op(0, "separate-grads-all-reduce", 7, 8)
    waits = step.waits()
    assert waits["grads-reduce-scatter 0 of 0"] == {"backward-compute 0 of 0"}
    assert waits["layernorm-grads-all-reduce 0 of 0"] == {
        "backward-compute 1 of 0",
        "grads-reduce-scatter 1 of 0",
    }
    assert waits["separate-grads-all-reduce 0 of 0"] == {"layernorm-grads-all-reduce 0 of 0"}


def test_a_type_that_no_schedule_is_known_for_is_named():
    with pytest.raises(InputError, match="zigzag") as refused:
        Step().op(0, "zigzag", 0, 1).waits()
    assert "forward-compute" in refused.value.hint


def test_a_stage_that_lacks_messages_is_named():
    step = two_stages()
    for number in range(3):
        step.op(0, "forward-compute", 20 + number, 21 + number)
    with pytest.raises(InputError, match="stage 0: 1 forward-send for 4 computes"):
        step.waits()
