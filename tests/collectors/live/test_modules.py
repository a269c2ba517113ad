"""Hooks that time modules: they disturb nothing, and nothing is left of them."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
import threading
import time
import warnings

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from tracekit.collectors.live import modules
from tracekit.collectors.live.modules import SpanHook, found_models, largest

pytestmark = pytest.mark.torch
HOOKS = (
    "_forward_hooks", "_forward_pre_hooks", "_forward_hooks_with_kwargs",
    "_forward_pre_hooks_with_kwargs", "_forward_hooks_always_called",
)  # fmt: skip


class Spans(dict):
    """Durations by name, as a summary collects them."""

    def add(self, name, dur_ns):
        self.setdefault(name, []).append(dur_ns)

    def counts(self):
        return {name: len(each) for name, each in self.items()}


class Around:
    """What is told of calls, and does not care."""

    def before(self, now_ns):
        pass

    after = before


class Slow(torch.nn.Module):
    """Sleeps in its forward pass, and has a parameter so that it counts as a model."""

    def __init__(self, inner=None, sleep_s=0.0):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.inner = inner
        self.sleep_s = sleep_s

    def forward(self, x):
        time.sleep(self.sleep_s)
        return self.inner(x) if self.inner is not None else x * self.weight


class Recursive(Slow):
    def forward(self, n):
        time.sleep(0.002)
        return self(n - 1) if n else n


@pytest.fixture
def spans():
    return Spans()


@pytest.fixture
def hooked(spans):
    """Hook a module under a name; all hooks are taken away at the end."""
    made = []

    def hook(module, name="it", **kwargs):
        made.append(SpanHook(name, module, spans.add, **kwargs))
        return made[-1]

    yield hook
    for each in made:
        each.remove()


@pytest.fixture
def found(spans):
    """The hooks that are found for this model alone, whatever other tests have left alive."""
    made = []

    def find(model):
        alive = modules.gc.get_objects

        def only():
            return list(model.modules())

        modules.gc.get_objects = only
        try:
            made.extend(found_models(spans.add, Around()))
        finally:
            modules.gc.get_objects = alive
        return list(made)

    yield find
    for each in made:
        each.remove()


def n_hooks(model):
    return sum(len(getattr(each, name)) for each in model.modules() for name in HOOKS)


def deep():
    return torch.nn.Sequential(
        *[torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()) for _ in range(3)]
    )


def test_a_call_is_timed_and_its_result_is_as_before(hooked, spans):
    model = Slow(sleep_s=0.005)
    before = model(torch.ones(2))
    hooked(model)
    after = model(torch.ones(2))
    assert torch.equal(before, after)
    assert 5e6 <= spans["it"][0] < 1e9


def test_hooks_leave_the_model_as_it_was(hooked):
    model = deep()
    hook = hooked(model)
    assert n_hooks(model) == 3  # before, after, and that the latter is always called
    hook.remove()
    assert n_hooks(model) == 0


def test_the_models_are_found_with_their_parts_and_then_the_largest_kept(found, spans):
    model = deep()
    hooks = found(model)
    names = {hook.name for hook in hooks}
    assert {"Sequential", "Sequential.0", "Sequential.2.1"} <= names
    assert len(hooks) == 1 + 3 + 6
    for _ in range(4):
        model(torch.ones(1, 4))
    assert spans.counts() == dict.fromkeys(names, 4)
    kept = largest(hooks, 10)  # the model's 4 calls, and 4 of one part
    assert kept[0].name == "Sequential"
    assert len(kept) == 2
    assert n_hooks(model) == 2 * 3


def test_a_model_called_too_often_is_not_timed(hooked):
    often = hooked(Slow(), "often", is_model=True)
    seldom = hooked(Slow(), "seldom", is_model=True)
    copied = hooked(Slow(), "not called", is_model=True)
    often.n_calls, often.total_ns, seldom.n_calls = 1000, 10**9, 1
    assert largest([often, seldom, copied], 80) == [seldom, copied]


def test_calls_in_other_threads_are_not_counted(hooked, spans):
    model = Slow()
    hook = hooked(model)
    thread = threading.Thread(target=model, args=(torch.ones(1),))
    thread.start()
    thread.join()
    assert (dict(spans), hook.n_calls) == ({}, 0)


def test_a_call_inside_a_call_counts_once(hooked, spans):
    model = Recursive()
    hook = hooked(model)
    model(3)
    assert len(spans["it"]) == 1
    assert spans["it"][0] >= 4 * 2e6  # four levels of 2 ms
    assert hook.n_calls == 4  # each of them costs a hook


def test_an_exception_in_a_call_leaves_nothing_open(hooked, spans):
    model = Slow(Slow(sleep_s="none"))
    outer, inner = hooked(model, "outer"), hooked(model.inner, "inner")
    with pytest.raises(TypeError):
        model(torch.ones(1))
    model.inner.sleep_s = 0.0
    time.sleep(0.02)
    model(torch.ones(1))
    assert spans.counts() == {"outer": 2, "inner": 2}
    assert max(spans["outer"]) < 15e6  # the 20 ms between the calls are in neither
    assert (outer._n_open, inner._n_open) == (0, 0)


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_a_backward_pass_computes_again_is_not_a_call(hooked, spans, reentrant):
    model = Slow()
    hook = hooked(model)
    x = torch.ones(4, requires_grad=True)
    checkpoint(model, x, use_reentrant=reentrant).sum().backward()
    assert spans.counts() == {"it": 1}
    assert hook._n_open == 0
    model(x)
    assert spans.counts() == {"it": 2}


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize(
    "copied",
    [
        copy.deepcopy,
        lambda model: pickle.loads(pickle.dumps(model)),
        saved,
    ],
)
def test_a_copy_has_no_live_hooks(found, spans, copied):
    model = deep()
    found(model)
    other = copied(model)
    x = torch.ones(1, 4)
    assert torch.equal(other(x), model(x))
    assert set(spans.counts().values()) == {1}


def test_a_saved_model_can_be_loaded_without_tracekit(found, tmp_path):
    model = deep()
    found(model)
    torch.save(model, tmp_path / "model.pt")
    code = (
        "import sys, torch\n"
        f"model = torch.load({str(tmp_path / 'model.pt')!r}, weights_only=False)\n"
        "model(torch.ones(1, 4))\n"
        "sys.exit(any(name.startswith('tracekit') for name in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def test_parts_of_a_compiled_model_get_no_hooks(found):
    model = deep()
    model[1] = torch.compile(model[1], backend="eager")
    hooks = found(model)
    assert [hook.name for hook in hooks] == ["Sequential"]
    assert n_hooks(model) == 3


def test_modules_of_torchscript_get_no_hooks(found):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that TorchScript is deprecated
        traced = torch.jit.trace(torch.nn.Linear(4, 4), torch.ones(1, 4))
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), traced)
    assert [hook.name for hook in found(model)] == ["Sequential", "Sequential.0"]
    assert found(traced)[2:] == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_compiled_code_is_compiled_once_and_whole(found, when):
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    model = deep()

    def loss(x):
        return model(x).sum()

    compiled = torch.compile(loss, backend=backend)
    if when == "before":
        compiled(torch.ones(1, 4))
    found(model)
    compiled(torch.ones(1, 4))
    compiled(torch.ones(1, 4))
    assert len(graphs) == 1
