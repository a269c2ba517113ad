"""Converted runs of the traces that reference values exist for, each converted once."""

from __future__ import annotations

import importlib.util
import json
import sys
from functools import cache
from pathlib import Path

import pytest

import tracekit

NANOGPT = (
    "KellerJordan+modded-nanogpt/records/track_1_short/2025-12-11_NorMuonOptimsAndFixes"
    "/profiler-example-traces"
)
WITH_DEVICE = (
    "cp_event_sync",
    "cp_event_sync_multi",
    "cp_simple_add",
    "df_index_resolver",
    "df_index_resolver_last",
    "execution_trace_bench",
    "modded_nanogpt_8rank",
    "mtia_trace",
    "nccl_parser_config",
    "nccl_parser_config_last",
    "trace_compare_base",
    "trace_diff_control",
    "trace_filter",
    "trace_filter_last",
    "triton_example",
)
"""Folders of HTA's frames about traces with device events."""
LARGE = ("df_index_resolver", "modded_nanogpt_8rank", "mtia_trace", "trace_diff_control")


@pytest.fixture(scope="session")
def converted(traces, tmp_path_factory):
    """Run of a path below the folder of traces."""

    @cache
    def run(path):
        folder = tmp_path_factory.mktemp("golden") / "run"
        return tracekit.convert(traces / "traces" / path, folder, engine="local:1")

    return run


@pytest.fixture(scope="session")
def trace_of(traces):
    """Path, below the folder of traces, of what a folder of HTA's values was computed from."""

    def path(name):
        report = traces / "golden/hta" / name / "report.json"
        return json.loads(report.read_text())["trace"] if report.exists() else NANOGPT

    return path


@pytest.fixture(scope="session")
def hta():
    """The module of HTA's rules."""
    path = Path(__file__).with_name("hta.py")
    spec = importlib.util.spec_from_file_location("tests_golden_hta", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def golden_of(hta, traces, converted, trace_of):
    """Folder of HTA's frames by its name."""
    return lambda name: hta.Golden(traces / "golden/hta" / name, converted(trace_of(name)))


@pytest.fixture(
    scope="module",  # tests of one folder follow each other, so that its file is parsed once
    params=[
        pytest.param(name, marks=pytest.mark.slow if name.removesuffix("_last") in LARGE else ())
        for name in WITH_DEVICE
    ],
)
def golden(request, golden_of):
    """Every folder of HTA's frames about a trace with device events."""
    return golden_of(request.param)


@pytest.fixture
def golden_names():
    return WITH_DEVICE
