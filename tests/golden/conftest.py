"""Converted runs of the traces that reference values exist for, each converted once."""

from __future__ import annotations

import json
from functools import cache

import pytest

import tracekit

NANOGPT = (
    "KellerJordan+modded-nanogpt/records/track_1_short/2025-12-11_NorMuonOptimsAndFixes"
    "/profiler-example-traces"
)


@pytest.fixture(scope="session")
def converted(traces, tmp_path_factory):
    """Run of a path below the folder of traces."""

    @cache
    def run(path):
        folder = tmp_path_factory.mktemp("golden") / "run"
        return tracekit.convert(traces / "traces" / path, folder, engine="local:1")

    return run


@pytest.fixture
def trace_of(traces):
    """Path, below the folder of traces, of what a folder of HTA's values was computed from."""

    def path(name):
        report = traces / "golden/hta" / name / "report.json"
        return json.loads(report.read_text())["trace"] if report.exists() else NANOGPT

    return path
