"""What is said of a torch: of a whole one, a broken one, one for no device, and of none."""

from __future__ import annotations

import pytest

TORCH = {
    "version": "2.13.0",
    "cuda": "13.0",
    "hip": None,
    "xpu": None,
    "kineto": True,
    "activities": ["CPU", "CUDA"],
    "options": "enable_cuda_sync_events: bool = False, record_python_gc_info: bool = False",
}


def states(answers):
    return [state for state, _, _ in answers]


def test_a_whole_torch_is_fine(fake, ask):
    fake.python_says(TORCH)
    said = ask("torch-build")
    assert states(said) == ["ok"] * 5
    assert said[1][1] == "torch is 2.13.0, built for CUDA 13.0."
    assert said[2][1] == "The profiler records the CPU and CUDA."


def test_no_torch_is_a_note_that_says_what_cannot_be_recorded(fake, ask):
    fake.python_says(None)
    _, (state, text, _) = ask("torch-build")
    assert state == "note"
    assert text == "torch is not in this Python: traces can be analysed, but no job recorded."


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'ImportError: libcudart.so.13: cannot open' >&2; exit 1", "libcudart.so.13"),
        ("kill -SEGV $$", "it ended with -11"),
    ],
)
def test_a_torch_that_cannot_be_imported_is_a_problem(fake, ask, script, why):
    fake.program("python", script)
    _, (state, text, fix) = ask("torch-build")
    assert state == "problem"
    assert why in text
    assert fix.endswith("-c 'import torch'")


def test_a_torch_without_kineto_is_a_problem(fake, ask):
    fake.python_says({**TORCH, "kineto": False})
    assert states(ask("torch-build")) == ["ok", "ok", "problem", "ok", "ok"]


def test_a_torch_for_the_cpu_is_a_problem_only_where_there_are_devices(fake, ask):
    fake.python_says({**TORCH, "cuda": None, "activities": ["CPU"]})
    said = ask("torch-build")
    assert said[1][1] == "torch is 2.13.0, built for the CPU."
    assert said[2][0] == "note"
    fake.nvidia("GPU-1", "GPU-2")
    state, text, _ = ask("torch-build")[2]
    assert state == "problem"
    assert text == "The profiler records the CPU alone, and this machine has 2 GPUs."


def test_an_option_of_newer_versions_is_a_note(fake, ask):
    fake.python_says({**TORCH, "options": "enable_cuda_sync_events: bool = False"})
    state, text, _ = ask("torch-build")[-1]
    assert state == "note"
    assert text.startswith("record_python_gc_info is unknown to this torch")
