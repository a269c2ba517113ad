"""What all tests share: the folder of real traces, small runs, skips that CI does not accept."""

from __future__ import annotations

import importlib.util
import os
import sys
from itertools import count
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).parents[1]

NO_TRACES = "no folder of real traces: set TRACEKIT_TRACES"
NO_GPU = "no GPU"
ACCEPTED = (NO_TRACES, NO_GPU)
"""The only reasons for which CI lets a test be skipped."""

hypothesis.settings.register_profile("local", deadline=None, database=None)
hypothesis.settings.register_profile("ci", deadline=None, database=None, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") == "true" else "local")


@pytest.fixture(scope="session")
def traces() -> Path:
    """The folder that holds `traces/` and `golden/`."""
    folder = Path(os.environ.get("TRACEKIT_TRACES", ROOT / "../shared")).resolve()
    if not (folder / "traces").is_dir():
        pytest.skip(NO_TRACES)
    return folder


@pytest.fixture(scope="session")
def runs():
    """The module that writes runs: `runs.Trace()`, `runs.kineto(…)`."""
    spec = importlib.util.spec_from_file_location("tests_runs", ROOT / "tests/derive/runs.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def make_run(runs, tmp_path):
    """Write traces by rank, or one of rank 0, as a run."""
    numbers = count()

    def make(traces, **facts):
        by_rank = traces if isinstance(traces, dict) else {0: traces}
        return runs.write(tmp_path / f"run-{next(numbers)}", by_rank, **facts)

    return make


@pytest.fixture
def trace(runs):
    """An empty trace of one rank."""
    return runs.Trace()


@pytest.fixture(scope="session")
def four_ranks(runs, traces, tmp_path_factory):
    """Run of a case of collectives-4-ranks, by its letter."""
    folder = traces / "traces/collectives-4-ranks"

    def case(letter):
        source = next(folder.glob(f"{letter}_*"))
        return runs.converted(source, tmp_path_factory.mktemp("case") / "run")

    return case


N_TIMED_RUNS = 3


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test marked `timed` again where it fails: a fault of the code fails all three times."""
    if pyfuncitem.get_closest_marker("timed") is None:
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    for n_left in reversed(range(N_TIMED_RUNS)):
        try:
            pyfuncitem.obj(**arguments)
        except Exception:
            if not n_left:
                raise
        else:
            break
    return True


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests marked `gpu` where there is none."""
    devices = (Path("/dev/nvidiactl"), Path("/dev/kfd"))
    if item.get_closest_marker("gpu") and not any(device.exists() for device in devices):
        pytest.skip(NO_GPU)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Fail a test that CI must not skip."""
    return _refused(item, (yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Fail a module that CI must not skip."""
    return _refused(collector, (yield))


def _refused(node, report):
    """The report, failed where CI is told `true` and the reason of a skip is not accepted."""
    if os.environ.get("CI") != "true" or not report.skipped or hasattr(report, "wasxfail"):
        return report
    reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
    if not reason.removeprefix("Skipped: ").startswith(ACCEPTED):
        report.outcome = "failed"
        report.longrepr = f"{node.nodeid}: skipped under CI: {reason}"
    return report
