"""What each operation of a pipeline step waits for: one worker of every stage, one step.

A worker has one compute stream, four streams of messages (send and receive, forward and backward)
and one of data-parallel communication; each runs in recorded order. Across streams: parameters are
gathered before the first forward of their chunk, gradients reduced after the last backward,
messages received before the compute that needs them and sent after the one that made them
(arXiv 2505.05713, section 3.2). Members of a communication meet: none ends before all have begun.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import TYPE_CHECKING

from tracekit.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

FORWARD, BACKWARD = "forward-compute", "backward-compute"
GATHER, REDUCE, SEPARATE = "params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce"
LAYER_NORM, EMBEDDING = "layernorm-grads-all-reduce", "embedding-grads-all-reduce"
CLIP, OPTIMIZER, COLLECTION = "optimizer-clip-main-grad", "optimizer", "gc"
MESSAGES = ("forward-send", "forward-recv", "backward-send", "backward-recv")
ACROSS_REPLICAS = (GATHER, REDUCE, SEPARATE, CLIP)
"""Communication in which all data-parallel ranks meet."""
COMMUNICATION = (*MESSAGES, *ACROSS_REPLICAS, LAYER_NORM, EMBEDDING)
"""What is equalised by the median of its transfer; everything else is compute."""
KNOWN = (FORWARD, BACKWARD, *COMMUNICATION, OPTIMIZER, COLLECTION)
CLOCK_SLACK_NS = 50_000
"""A message may begin or end this much on the wrong side of its compute: clocks are not exact."""


@dataclass(frozen=True, slots=True)
class Op:
    """One operation of the step: where and what it is, when it ran (ns), and its place."""

    index: int
    stage: int
    type: str
    sequence: int
    start_ns: int
    end_ns: int
    chunk: int | None
    model_chunk: int | None


@dataclass(frozen=True, slots=True)
class Order:
    """For each operation, by index, those it waits for; and which of them meet.

    `groups` holds lists of operations of one replica that begin together; `is_across` says of each
    whether its other replicas take part too.
    """

    waits_for: tuple[tuple[int, ...], ...]
    groups: tuple[tuple[int, ...], ...]
    is_across: tuple[bool, ...]


def pipeline_order(ops: Sequence[Op]) -> Order:
    """The order of one step, from the operations of one worker a stage.

    Raises:
        InputError: a type is not known, or messages and compute do not fit each other.
    """
    unknown = sorted({op.type for op in ops} - set(KNOWN))
    if unknown:
        raise InputError(
            f"operations of types that no schedule is known for: {', '.join(unknown[:5])}",
            hint=f"Known types: {', '.join(KNOWN)}",
        )
    return _Builder(ops).order()


@dataclass
class _Builder:
    ops: Sequence[Op]
    waits_for: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    groups: list[tuple[int, ...]] = field(default_factory=list)

    def order(self) -> Order:
        stages = sorted({op.stage for op in self.ops})
        by_stage = {s: _Stage([op for op in self.ops if op.stage == s]) for s in stages}
        self._messages(by_stage)
        for stage in by_stage.values():
            self._chain(stage.compute)
            self._first_backward(stage)
            self._replicas(stage)
            self._after_compute(stage)
        self._meetings(by_stage)
        across = tuple(self.ops[group[0]].type in ACROSS_REPLICAS for group in self.groups)
        waits_for = tuple(tuple(dict.fromkeys(self.waits_for[op.index])) for op in self.ops)
        return Order(waits_for, tuple(self.groups), across)

    def _chain(self, ops: Iterable[Op]) -> None:
        for before, after in pairwise(ops):
            self._after(after, before)

    def _after(self, op: Op, *before: Op) -> None:
        self.waits_for[op.index] += [each.index for each in before]

    def _messages(self, by_stage: dict[int, _Stage]) -> None:
        """Tie messages to the compute they serve and to each other."""
        n_chunks = 1 + max((op.model_chunk or 0 for op in self.ops), default=0)
        numbered: dict[tuple[str, int], list[Op]] = {}
        for number, stage in by_stage.items():
            for kind in MESSAGES:
                served = _served(stage, kind)
                for message, index, compute in served:
                    if kind.endswith("send"):
                        self._after(message, compute[index])
                    else:
                        self._after(compute[index], message)
                        if index:
                            self._after(message, compute[index - 1])
                real = [m for m, i, c in served if _has_peer(kind, c[i], n_chunks)]
                numbered[kind, number] = real
                self._chain(stage.of(kind))
                alone = {op.index for op in stage.of(kind)} - {op.index for op in real}
                self.groups += [(index,) for index in sorted(alone)]
        self._pair(by_stage, numbered)

    def _pair(self, by_stage: dict[int, _Stage], numbered: dict[tuple[str, int], list[Op]]) -> None:
        stages = list(by_stage)
        for place, stage in enumerate(stages):
            for direction, step in (("forward", 1), ("backward", -1)):
                to = stages[(place + step) % len(stages)]
                sent = numbered[f"{direction}-send", stage]
                received = numbered[f"{direction}-recv", to]
                if len(sent) != len(received):
                    raise InputError(
                        f"stage {stage} sends {len(sent)} {direction} messages and stage {to} "
                        f"receives {len(received)}",
                        hint="A step that was cut, or a schedule that tracekit does not know.",
                    )
                self.groups += [(a.index, b.index) for a, b in zip(sent, received, strict=True)]

    def _first_backward(self, stage: _Stage) -> None:
        """The first backward messages are posted before the last forward of the warm-up."""
        first = next((i for i, op in enumerate(stage.compute) if op.type == BACKWARD), 0)
        if first >= 2:
            for kind in ("backward-recv", "backward-send"):
                for message in stage.of(kind):
                    if message.sequence == 0:
                        self._after(message, stage.compute[first - 2])

    def _replicas(self, stage: _Stage) -> None:
        """Parameters come before the first forward of their chunk, in the order of the stream."""
        self._chain(sorted(chain(stage.of(GATHER), stage.of(REDUCE)), key=_by_start))
        last_of_chunk = {op.chunk: op for op in stage.of(GATHER)}
        for chunk, gather in last_of_chunk.items():
            users = [op for op in stage.of(FORWARD) if op.chunk == chunk]
            if users:
                self._after(min(users, key=_by_start), gather)
        if stage.of(SEPARATE):
            first_of_chunk = {op.chunk: op for op in reversed(stage.of(REDUCE))}
            for chunk, reduce in first_of_chunk.items():
                makers = [op for op in stage.of(BACKWARD) if op.chunk == chunk]
                if makers:
                    self._after(reduce, max(makers, key=lambda op: op.end_ns))

    def _after_compute(self, stage: _Stage) -> None:
        """What ends the step, in order; reduced gradients overlap compute where some are apart."""
        if not stage.compute:
            return
        last = max(stage.compute, key=lambda op: op.end_ns)
        separate, reduced = stage.of(SEPARATE), stage.of(REDUCE)
        reduce = separate or reduced
        tail = [*stage.of(LAYER_NORM), *stage.of(EMBEDDING), *reduce]
        tail += [*stage.of(CLIP), *stage.of(OPTIMIZER)]
        collection = stage.of(COLLECTION)
        self._chain([last, *collection, *tail])
        if separate and reduced and tail:
            self._after(tail[0], reduced[-1])

    def _meetings(self, by_stage: dict[int, _Stage]) -> None:
        """Collectives: of the replicas by themselves, of the first and last stage, of all."""
        for stage in by_stage.values():
            for kind in (GATHER, REDUCE, SEPARATE):
                self.groups += [(op.index,) for op in stage.of(kind)]
        for kind in (EMBEDDING, CLIP):
            meeting: dict[int, list[int]] = defaultdict(list)
            for stage in by_stage.values():
                for op in stage.of(kind):
                    meeting[op.sequence].append(op.index)
            self.groups += [tuple(indices) for indices in meeting.values()]


class _Stage:
    """The operations of one stage: by type in order of sequence, compute in order of start."""

    def __init__(self, ops: Sequence[Op]) -> None:
        self._by_type: dict[str, list[Op]] = defaultdict(list)
        for op in sorted(ops, key=lambda op: op.sequence):
            self._by_type[op.type].append(op)
        both = chain(self.of(FORWARD), self.of(BACKWARD))
        self.compute = sorted(both, key=_by_start)

    def of(self, kind: str) -> list[Op]:
        """Operations of one type."""
        return self._by_type.get(kind, [])


def _by_start(op: Op) -> tuple[int, int, str]:
    return op.start_ns, op.sequence, op.type


def _served(stage: _Stage, kind: str) -> list[tuple[Op, int, list[Op]]]:
    """Messages of a kind with the compute they bring data to or take it from.

    Profilers record calls too that moved nothing, before the first or after the last compute.
    """
    compute = stage.of(FORWARD if kind.startswith("forward") else BACKWARD)
    messages = sorted(stage.of(kind), key=_by_start)
    if not compute or not messages:
        return []
    is_receive = kind.endswith("recv")
    if is_receive:
        last_ns = max(op.start_ns for op in compute) + CLOCK_SLACK_NS
        moving = [op for op in messages if op.start_ns <= last_ns]
    else:
        first_ns = min(op.end_ns for op in compute) - CLOCK_SLACK_NS
        moving = [op for op in messages if op.end_ns >= first_ns]
    absent = len(compute) - len(moving)
    if moving and absent not in (0, 1):
        raise InputError(
            f"stage {messages[0].stage}: {len(moving)} {kind} for {len(compute)} computes",
            hint="A step that was cut, or a schedule that tracekit does not know.",
        )
    shift = absent if is_receive else 0  # of chunks, the very first may have no message
    return [(op, i + shift, compute) for i, op in enumerate(moving)]


def _has_peer(kind: str, compute: Op, n_chunks: int) -> bool:
    """Whether another chunk is at the other end: the first and the last one lack a neighbour."""
    if compute.model_chunk is None:
        return True
    is_onward = kind in ("forward-send", "backward-recv")
    return 0 <= compute.model_chunk + (1 if is_onward else -1) < n_chunks
