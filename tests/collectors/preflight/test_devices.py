"""Devices by the files of their drivers, and the libraries that sample them."""

from __future__ import annotations

import pytest

NOTHING = {"NVML": "not installed", "amdsmi": "not installed", "psutil": "not installed"}


def test_devices_of_both_vendors_are_named_by_uuid(fake, ask):
    fake.nvidia("GPU-aaaa", "GPU-bbbb")
    nodes = "sys/class/kfd/kfd/topology/nodes"
    fake.write(f"{nodes}/0/properties", "simd_count 0\nunique_id 0\n")
    fake.write(f"{nodes}/1/properties", "simd_count 1216\nunique_id 4660\n")
    fake.write(f"{nodes}/1/name", "aqua_vanjaram\n")
    assert ask("devices") == [
        ("ok", "NVIDIA H100 is there: GPU-aaaa.", ""),
        ("ok", "NVIDIA H100 is there: GPU-bbbb.", ""),
        ("ok", "AMD GPU aqua_vanjaram is there: GPU-0000000000001234.", ""),
    ]


def test_a_driver_without_files_is_asked_through_its_program(fake, ask):
    fake.program(
        "nvidia-smi",
        "echo 'GPU 0: NVIDIA H200 (UUID: GPU-aaaa)'; echo '  MIG 1g Device 0: (UUID: MIG-b)'",
    )
    assert ask("devices") == [("ok", "NVIDIA H200 is there: GPU-aaaa.", "")]


def test_no_device_is_a_note(ask):
    ((state, text, fix),) = ask("devices")
    assert (state, "only the host can be recorded" in text) == ("note", True)
    assert fix


def test_a_driver_that_does_not_answer_is_a_problem(fake, ask):
    fake.nvidia("GPU-aaaa")
    fake.program("nvidia-smi", "echo 'Driver/library version mismatch.'; exit 18")
    state, text, _ = ask("devices")[-1]
    assert state == "problem"
    assert text == "The NVIDIA driver does not answer: Driver/library version mismatch."
    fake.program("nvidia-smi", "echo 'GPU 0: NVIDIA H100'")
    assert [state for state, _, _ in ask("devices")] == ["ok"]


def test_libraries_that_sample_are_named(fake, ask):
    fake.python_says({"NVML": 8, "amdsmi": 4, "psutil": 16})
    assert [text for state, text, _ in ask("telemetry-sources") if state == "ok"] == [
        "NVML samples 8 devices.",
        "amdsmi samples 4 devices.",
        "psutil samples the processes of the host.",
    ]


def test_a_library_is_missed_only_for_a_device_that_is_there(fake, ask):
    fake.python_says(NOTHING)
    assert len(ask("telemetry-sources")) == 1
    fake.nvidia("GPU-aaaa")
    missing = ("note", "NVML samples no device: not installed.")
    assert ask("telemetry-sources")[0] == (*missing, "pip install 'tracekit-gpu[telemetry]'")


@pytest.mark.parametrize(
    ("said", "why"), [(0, "it finds no device"), ("Driver Not Loaded", "Driver Not Loaded")]
)
def test_a_library_that_finds_nothing_says_why(fake, ask, said, why):
    fake.nvidia("GPU-aaaa")
    fake.python_says({**NOTHING, "NVML": said})
    state, text, _ = ask("telemetry-sources")[0]
    assert (state, text) == ("note", f"NVML samples no device: {why}.")


def test_a_library_that_hangs_or_dies_is_a_note(fake, ask):
    fake.program("python", "kill -SEGV $$")
    ((state, text, _),) = ask("telemetry-sources")
    assert (state, text) == (
        "note",
        "Neither devices nor host can be sampled: it ended with -11.",
    )
