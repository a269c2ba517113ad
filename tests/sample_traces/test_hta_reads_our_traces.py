"""HolisticTraceAnalysis reads simulated traces like real ones, and agrees with us on them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import tracekit
from tracekit.sample_traces import scenarios

NAMES = ("healthy-3d", "slow-input", "serialized-communication")
ASK_HTA = Path(__file__).with_name("ask_hta.py")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The traces of each scenario."""
    made = {name: tmp_path_factory.mktemp(name) for name in NAMES}
    for name, folder in made.items():
        scenarios()[name].build(folder, 1, 1.0)
    return made


@pytest.fixture(scope="module")
def theirs(folders):
    """Their figures of each scenario: six analyses, none of which has failed."""
    done = subprocess.run(
        [sys.executable, ASK_HTA, *folders.values()], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    return {name: figures[str(folder)] for name, folder in folders.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_its_analyses_run_and_its_breakdown_is_ours(folders, theirs, name):
    their = theirs[name]
    result = tracekit.analyze(folders[name], engine="local:1")
    assert set(result.run.steps) <= set(their["steps"])
    assert min(their["n_launches"].values()) > 100
    assert {"COMPUTATION", "COMMUNICATION", "MEMORY"} <= set(their["kinds"])
    assert their["n_kernels"] > 10
    assert len(result.whole) == len(their["temporal"]) == len(their["idle"]) >= 4
    for ours in result.whole:
        parts = their["temporal"][str(ours.rank)]
        compute_ns = ours.exposed_compute_ns + ours.overlapped_ns
        # Theirs are sums of doubles in µs; the digits of the files are whole nanoseconds.
        assert 1000 * parts["kernel_time(us)"] == pytest.approx(ours.dur_ns, abs=0.1)
        assert 1000 * parts["compute_time(us)"] == pytest.approx(compute_ns, abs=0.1)
        assert 1000 * parts["idle_time(us)"] == pytest.approx(ours.idle_ns, abs=0.1)
        communication_ns = ours.overlapped_ns + ours.exposed_communication_ns
        overlap_percent = 100 * ours.overlapped_ns / communication_ns
        assert their["overlap"][str(ours.rank)] == pytest.approx(overlap_percent, abs=0.006)
