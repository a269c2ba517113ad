"""The parallel layout, from each of its sources."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from tracekit.collectors.live import layout as module
from tracekit.collectors.live.layout import from_deepspeed, from_megatron, from_sizes, layout


@pytest.fixture
def loaded(monkeypatch):
    """Put functions that return these numbers into a module that the job has loaded."""

    def load(name, **numbers):
        functions = {key: (lambda value=value: value) for key, value in numbers.items()}
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(**functions))

    return load


def test_given_sizes_place_neighbours_first():
    found = from_sizes(13, 16, {"tp": 4, "pp": 2, "dp": 2})
    assert found.sizes == {"tp": 4, "pp": 2, "dp": 2}
    assert found.place == {"tp": 1, "pp": 1, "dp": 1}
    assert found.source == "given"


def test_sizes_that_are_not_the_world_give_no_place():
    assert from_sizes(1, 16, {"tp": 4}).place == {}


def test_megatron_tells_its_groups(loaded):
    loaded(
        "megatron.core.parallel_state",
        model_parallel_is_initialized=True,
        get_tensor_model_parallel_world_size=4,
        get_tensor_model_parallel_rank=3,
        get_pipeline_model_parallel_world_size=2,
        get_pipeline_model_parallel_rank=1,
        get_data_parallel_world_size=1,
        get_data_parallel_rank=0,
        get_context_parallel_world_size=1,
        get_context_parallel_rank=0,
    )  # of a version without experts
    found = layout(7, 8)
    assert found.sizes == {"tp": 4, "pp": 2, "dp": 1}
    assert found.place == {"tp": 3, "pp": 1, "dp": 0}
    assert found.source == "Megatron"


def test_megatron_before_its_groups_says_nothing(loaded):
    loaded("megatron.core.parallel_state", model_parallel_is_initialized=False)
    assert from_megatron() is None


def test_deepspeed_tells_its_groups(loaded):
    loaded(
        "deepspeed.utils.groups",
        _get_data_parallel_world_size=8,
        _get_data_parallel_rank=5,
        _get_expert_parallel_world_size=2,
        _get_expert_parallel_rank=1,
    )
    found = from_deepspeed()
    assert found.sizes == {"dp": 8, "ep": 2}
    assert found.place == {"dp": 5, "ep": 1}


def test_a_source_that_breaks_is_passed_over(monkeypatch):
    def broken():
        raise RuntimeError

    monkeypatch.setattr(module, "from_megatron", broken)
    monkeypatch.setattr(module, "from_deepspeed", broken)
    monkeypatch.setattr(module, "from_modules", broken)
    assert layout(0, 2).sizes == {}
