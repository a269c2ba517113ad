"""Stages depend only on the stages before them, and help costs nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import tracekit

ROOT = Path(__file__).parents[1]
HEAVY = {"polars", "plotly", "pyarrow", "jinja2", "msgspec", "rich", "numpy"}


def modules_after(code):
    """The top-level names of the modules that are loaded once the code has run."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{code}\nimport json, sys; print(json.dumps(sorted(sys.modules)))",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.partition(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


def test_the_layers_hold():
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [lint, "--no-cache", "--no-logo"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_help_loads_nothing_heavy():
    code = "from tracekit.cli import main\nmain(['--help'], standalone_mode=False)"
    assert not HEAVY & modules_after(code)


def test_importing_tracekit_loads_nothing_but_the_standard_library():
    extra = modules_after("import tracekit") - modules_after("") - set(sys.stdlib_module_names)
    assert extra == {"tracekit"}


def test_every_name_of_the_interface_can_be_used():
    for name in tracekit.__all__:
        assert getattr(tracekit, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tracekit.nothing


def test_the_interface_is_listed_before_it_is_loaded():
    assert set(tracekit.__all__) <= set(dir(tracekit))
