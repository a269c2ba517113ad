"""What is timed of a step, what it costs, and that all of it is taken away again."""

from __future__ import annotations

import gc
import importlib
import json
import threading
import time
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from tracekit.collectors.live import parts as module
from tracekit.collectors.live import summary
from tracekit.collectors.live.device_times import EVERY, DeviceTimes
from tracekit.collectors.live.parts import (
    AFTER_FORWARD,
    CLOSURE,
    COLLECTION,
    LOADER,
    OPTIMIZER,
    Parts,
)
from tracekit.collectors.live.steps import Steps

pytestmark = pytest.mark.torch
optim = importlib.import_module("torch.optim.optimizer")  # torch.optim hides the module's name
MAX_COST_NS = 500_000
"""0.5 ms, which is 0.5 % of a step of 100 ms."""


class Spans(dict):
    """Durations by part, as the summary of one step collects them."""

    def add(self, part, dur_ns):
        self.setdefault(part, []).append(dur_ns)

    def n(self, part):
        return len(self.get(part, ()))


class Loop:
    """A training loop of a model with more parts than are timed."""

    def __init__(self, n_layers=40, n_batches=1):
        self.model = torch.nn.Sequential(
            *[torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()) for _ in range(n_layers)]
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.n_batches = n_batches

    def step(self):
        for batch in DataLoader(torch.ones(2 * self.n_batches, 8), batch_size=2):
            self.model(batch).sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


@pytest.fixture
def spans():
    return Spans()


@pytest.fixture
def parts(spans):
    """What is timed of the steps of this thread."""
    gc.collect()  # the models of other tests
    made = Parts(spans, DeviceTimes())
    made.start()
    yield made
    made.stop()


def n_hooks(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_the_parts_of_a_step_are_timed(parts, spans):
    loop = Loop(n_layers=2, n_batches=3)
    loop.step()
    parts.end_step()
    spans.clear()
    loop.step()
    gc.collect()
    parts.end_step()
    assert spans.n(LOADER) == 3
    assert spans.n(OPTIMIZER) == 1
    assert spans.n(AFTER_FORWARD) == 3
    assert spans.n(COLLECTION) >= 1
    model = next(name for name in spans if name.startswith("Sequential") and "." not in name)
    assert spans.n(model) == 3


def test_an_optimizer_that_calls_the_forward_pass_says_so(parts, spans):
    loop = Loop(n_layers=1)

    def closure():
        loss = loop.model(torch.ones(1, 8)).sum()
        loss.backward()
        return loss

    for _ in range(2):
        loop.optimizer.step(closure)
        parts.end_step()
    spans.clear()
    loop.optimizer.step(closure)
    assert spans.n(OPTIMIZER) == 0
    assert spans.n(CLOSURE) == spans.n(AFTER_FORWARD) == 1


def test_the_forward_pass_of_a_model_that_is_not_called_is_that_of_its_parts(parts, spans):
    loop = Loop(n_layers=2)  # as a LightningModule, whose training_step is not its forward pass
    for _ in range(3):
        spans.clear()
        x = torch.ones(1, 8)
        for layer in loop.model:
            x = layer(x)
        x.sum().backward()
        parts.end_step()
    # from the first to the second, and from that to the end of the step
    assert spans.n(AFTER_FORWARD) == 2
    assert spans[AFTER_FORWARD][1] > spans[AFTER_FORWARD][0]


def test_after_the_second_step_few_calls_are_timed(parts, spans):
    loop = Loop(n_layers=200)
    for _ in range(2):
        loop.step()
        parts.end_step()
    spans.clear()
    loop.step()
    n_calls = sum(len(each) for name, each in spans.items() if name.startswith("Sequential"))
    assert 1 < n_calls <= module.MAX_CALLS


def test_a_single_step_with_many_calls_changes_nothing(parts, spans):
    loop = Loop(n_layers=4)
    x = torch.ones(1, 8)

    def step(n_calls):
        spans.clear()
        for _ in range(n_calls):
            loop.model(x)
        parts.end_step()
        return len([name for name in spans if name.startswith("Sequential")])

    n_timed = [step(1) for _ in range(4)][-1]
    assert n_timed > 1
    step(1000)  # an evaluation
    assert step(1) == n_timed
    for _ in range(2):
        step(1000)
    assert step(1) == 0


def test_nothing_is_left_at_the_end(spans):
    next_before, callbacks = _BaseDataLoaderIter.__next__, list(gc.callbacks)
    optimizer_hooks = optim._global_optimizer_pre_hooks
    parts, loop = Parts(spans, DeviceTimes()), Loop()
    parts.start()
    assert _BaseDataLoaderIter.__next__ is not next_before
    assert len(optimizer_hooks) == 1
    for _ in range(3):
        loop.step()
        parts.end_step()
    assert n_hooks(loop.model) > 0
    parts.stop()
    assert n_hooks(loop.model) == 0
    assert _BaseDataLoaderIter.__next__ is next_before
    assert gc.callbacks == callbacks
    assert not optimizer_hooks
    assert not optim._global_optimizer_post_hooks
    spans.clear()
    loop.step()
    gc.collect()
    assert not spans


def test_who_wrapped_the_loader_since_keeps_it_and_nothing_is_timed(spans, monkeypatch):
    before = _BaseDataLoaderIter.__next__
    monkeypatch.setattr(_BaseDataLoaderIter, "__next__", before)  # put back at the end
    parts = Parts(spans, DeviceTimes())
    parts.start()
    ours = _BaseDataLoaderIter.__next__

    def theirs(iterator):
        return ours(iterator)

    _BaseDataLoaderIter.__next__ = theirs
    parts.stop()
    assert _BaseDataLoaderIter.__next__ is theirs
    assert len(list(DataLoader(torch.ones(4, 8), batch_size=2))) == 2
    assert not spans


def test_a_list_of_callbacks_that_somebody_emptied_is_no_fault(spans):
    callbacks = list(gc.callbacks)
    parts = Parts(spans, DeviceTimes())
    parts.start()
    gc.callbacks.clear()
    parts.stop()
    gc.callbacks[:] = callbacks
    assert not optim._global_optimizer_pre_hooks


def test_other_threads_change_nothing(parts, spans):
    loop = Loop(n_layers=1)
    for _ in range(2):
        loop.step()
        parts.end_step()
    spans.clear()
    loop.model(torch.ones(1, 8))
    other = threading.Thread(target=lambda: (Loop(n_layers=1).step(), gc.collect()))
    other.start()
    other.join()
    names = set(spans)
    assert not {LOADER, OPTIMIZER, COLLECTION, AFTER_FORWARD} & names
    parts.end_step()
    assert spans.n(AFTER_FORWARD) == 1  # it is still open when the other thread has ended


def test_an_exception_in_a_step_leaves_nothing_open(parts, spans):
    loop = Loop(n_layers=1)
    for _ in range(2):
        loop.step()
        parts.end_step()
    with pytest.raises(RuntimeError):
        loop.optimizer.step(lambda: loop.model(torch.ones(1, 9)))
    parts.end_step()
    spans.clear()
    loop.step()
    parts.end_step()
    assert spans.n(OPTIMIZER) == spans.n(AFTER_FORWARD) == 1
    assert spans.n(CLOSURE) == 0


class Event:
    """An event of a device that does at once what it is told, 1 ms after the event before."""

    now_ms = 0

    def __init__(self, *_, enable_timing):
        assert enable_timing

    def record(self):
        Event.now_ms += 1
        self.at_ms = Event.now_ms

    def query(self):
        return True

    def elapsed_time(self, other):
        return other.at_ms - self.at_ms


def test_the_device_is_timed_where_the_host_is(tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "Event", Event)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("meta"))
    device = SimpleNamespace(is_initialized=lambda: True)
    monkeypatch.setattr(torch, "get_device_module", lambda _: device)
    gc.collect()  # the models of other tests
    loop, steps = Loop(n_layers=1, n_batches=2), Steps(tmp_path, 0)
    for step in range(EVERY + 3):
        loop.step()
        steps.end(step, 1)
    steps.close()
    path = tmp_path / "steps/rank=000000.jsonl"
    lines = [json.loads(each) for each in path.read_bytes().splitlines()]
    read = [line["device"] for line in lines if "device" in line]
    # the first is found after two steps; nothing marks where the third begins
    assert [each["step"] for each in read] == list(range(2, EVERY + 3))
    (parts,) = [each["parts"] for each in read if each["parts"]]
    ms = 10**6
    model = next(name for name in parts if name.startswith("Sequential") and "." not in name)
    # outside of the pair of the model lie those of its part and of the part's two
    assert parts[model] == [2, 2 * 7 * ms, 7 * ms, 7 * ms]
    assert parts[AFTER_FORWARD] == [2, 2 * ms, ms, ms]
    assert parts[OPTIMIZER] == [1, ms, ms, ms]
    host = lines[-1]["parts"]
    assert {name: n for name, (n, *_) in parts.items()} == {
        name: n for name, (n, *_) in host.items() if name not in {LOADER, COLLECTION}
    }


def cpu_ns(loop, n_steps, steps=None):
    """Thread CPU time of a step, the mean of so many."""
    began_ns = time.thread_time_ns()
    for step in range(n_steps):
        loop.step()
        if steps is not None:
            steps.end(step, 10**8)
    return (time.thread_time_ns() - began_ns) / n_steps


@pytest.mark.slow
@pytest.mark.timed
def test_a_step_costs_at_most_half_a_millisecond(tmp_path, monkeypatch):
    monkeypatch.setattr(summary, "FLUSH_S", 0.0)  # as a step of 100 ms does, each writes its line
    gc.collect()
    loop = Loop(n_layers=40)  # 81 modules, of which 24 calls are timed
    with_ns, without_ns = [], []
    # The least of short blocks, interleaved: other processes slow some of both kinds down.
    for number in range(60):
        without_ns.append(cpu_ns(loop, 10))
        steps = Steps(tmp_path, number)
        cpu_ns(loop, 3, steps)  # finds the models, then which of their parts take longest
        with_ns.append(cpu_ns(loop, 10, steps))
        steps.close()
        cost_ns = min(with_ns) - min(without_ns)
        if number >= 10 and cost_ns <= MAX_COST_NS:
            break
    lines = (tmp_path / "steps/rank=000000.jsonl").read_bytes().splitlines()
    assert len(json.loads(lines[-1])["parts"]) > 24
    assert cost_ns <= MAX_COST_NS, f"{cost_ns / 1e6:.3f} ms of thread CPU a step"
