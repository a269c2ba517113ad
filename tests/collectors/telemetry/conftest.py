"""A fake libnvidia-ml.so.1, and the process of the sampler run for real."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pynvml
import pytest

LIBRARY = "libnvidia-ml.so.1"
SOURCE = Path(__file__).with_name("fake_nvml.c")


@pytest.fixture(scope="session")
def nvml_folder(tmp_path_factory):
    """A folder that holds the fake library."""
    folder = tmp_path_factory.mktemp("nvml")
    command = ["cc", "-shared", "-fPIC", "-o", folder / LIBRARY, SOURCE]
    subprocess.run(command, check=True)
    return folder


@pytest.fixture
def fake_nvml(nvml_folder, tmp_path, monkeypatch):
    """Let pynvml load the fake library, with all counters at their beginning."""
    # A library is loaded once per file: a copy of its own gives each test new state.
    library = shutil.copy(nvml_folder / LIBRARY, tmp_path / LIBRARY)
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    monkeypatch.setattr(pynvml, "CDLL", lambda _: ctypes.CDLL(library))


@pytest.fixture
def tick():
    """A clock that is one second further at each look, from a time in ns since 1970."""

    def clock(start_ns=2_000_000_000_000_000_000):
        times = iter(range(start_ns, start_ns + 10**15, 10**9))
        return lambda: next(times)

    return clock


@pytest.fixture
def values():
    """Values of samples by metric."""

    def by_metric(samples):
        return {sample.metric: sample.value for sample in samples}

    return by_metric


@pytest.fixture
def start(nvml_folder, tmp_path):
    """Start the sampler as a process: `start("--every-s", "0.1")`; ended with the test."""
    running = []

    def begin(*arguments, out=None, with_nvml=True):
        environment = dict(os.environ)
        if with_nvml:
            environment["LD_LIBRARY_PATH"] = str(nvml_folder)
        command = [sys.executable, "-m", "tracekit.collectors.telemetry"]
        path = out or tmp_path / "telemetry.jsonl"
        process = subprocess.Popen(
            [*command, path, *map(str, arguments)], env=environment, stderr=subprocess.PIPE
        )
        running.append(process)
        return process

    yield begin
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture
def wait_for():
    """Wait until something holds."""

    def wait(holds, at_most_s=20.0):
        end_s = time.monotonic() + at_most_s
        while not holds():
            assert time.monotonic() < end_s
            time.sleep(0.01)

    return wait


@pytest.fixture
def parsed():
    """All lines of a file."""
    return lambda path: [json.loads(line) for line in path.read_bytes().splitlines()]
