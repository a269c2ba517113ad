"""Runs written from small tables, and the traces of four ranks whose truth is known."""

from __future__ import annotations

import importlib.util
import sys
from itertools import count
from pathlib import Path

import pytest


def _loaded(path):
    spec = importlib.util.spec_from_file_location("tests_derive_runs", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


RUNS = _loaded(Path(__file__).parents[1] / "derive/runs.py")


@pytest.fixture(scope="session")
def runs():
    """The module that writes runs: `runs.Trace()`, `runs.kineto(…)`."""
    return RUNS


@pytest.fixture
def make_run(tmp_path):
    """Write traces by rank, or one of rank 0, as a run."""
    numbers = count()

    def make(traces, **facts):
        by_rank = traces if isinstance(traces, dict) else {0: traces}
        return RUNS.write(tmp_path / f"run-{next(numbers)}", by_rank, **facts)

    return make


@pytest.fixture
def trace():
    """An empty trace of one rank."""
    return RUNS.Trace()


@pytest.fixture(scope="session")
def four_ranks(traces, tmp_path_factory):
    """Run of a case of collectives-4-ranks, by its letter."""
    folder = traces / "traces/collectives-4-ranks"

    def case(letter):
        source = next(folder.glob(f"{letter}_*"))
        return RUNS.converted(source, tmp_path_factory.mktemp("case") / "run")

    return case
