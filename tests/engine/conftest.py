"""A Dask cluster of real processes: a scheduler, and two workers that come back when killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import polars as pl
import pytest
from distributed import Client
from polars.testing import assert_frame_equal

import tracekit
from tracekit.results import write_result
from tracekit.sample_traces import scenarios

HERE = Path(__file__).parent
ENVIRONMENT = {
    # Workers import `tasks` by its name, and tracekit from where the tests do.
    "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")])),
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1",  # a second death is the last
}


@contextmanager
def process(folder, *arguments):
    """A module of Dask as a process of its own, ended with all that it started."""
    with (folder / f"{arguments[0]}.log").open("w") as output:
        started = subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.{arguments[0]}", *arguments[1:]],
            cwd=folder,
            env={**os.environ, **ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            yield started
        finally:
            with suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
            started.wait()


class Cluster:
    """A scheduler on a free port, with its file; workers are started on demand."""

    def __init__(self, folder, stack):
        self.file = folder / "scheduler.json"
        self._folder, self._stack = folder, stack
        self.scheduler = stack.enter_context(
            process(
                folder,
                "dask_scheduler",
                *("--host", "127.0.0.1", "--port", "0", "--no-dashboard"),
                *("--scheduler-file", str(self.file)),
            )
        )
        deadline_s = time.monotonic() + 60
        while not self.file.exists() or not self.file.read_text():
            assert time.monotonic() < deadline_s, "the scheduler does not start"
            time.sleep(0.05)
        self.address = json.loads(self.file.read_text())["address"]

    @property
    def engine(self):
        return f"dask:{self.address}"

    def start_workers(self, number):
        """Start as many, and wait until the scheduler knows them."""
        started = self._stack.enter_context(
            process(
                self._folder,
                "dask_worker",
                *("--scheduler-file", str(self.file), "--nworkers", str(number)),
                *("--nthreads", "1", "--no-dashboard", "--local-directory", str(self._folder)),
            )
        )
        with Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(number, timeout=60)
        return started


@pytest.fixture(scope="session")
def worker_environment():
    return {**os.environ, **ENVIRONMENT}


@pytest.fixture
def new_cluster(tmp_path_factory):
    """A cluster that a test may break; it has no worker yet."""
    with ExitStack() as stack:
        yield Cluster(tmp_path_factory.mktemp("dask"), stack)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """A cluster with two workers."""
    with ExitStack() as stack:
        cluster = Cluster(tmp_path_factory.mktemp("dask"), stack)
        cluster.start_workers(2)
        yield cluster


@pytest.fixture(scope="session")
def healthy_traces(tmp_path_factory):
    """Eight ranks of a simulated job."""
    folder = tmp_path_factory.mktemp("traces")
    scenarios()["healthy-ddp"].build(folder, 1, 1.0)
    return folder


@pytest.fixture(scope="session")
def local_output(healthy_traces, tmp_path_factory):
    """What the analysis in one process writes."""
    output = tmp_path_factory.mktemp("local")
    result = tracekit.analyze(healthy_traces, folder=output / "run", engine="local:1")
    write_result(result, output / "result.json")
    return output


@pytest.fixture
def same_output(local_output):
    """Hold an output to that of one process: the result, and every table."""

    def compare(output):
        ours, theirs = (
            json.loads((folder / "result.json").read_bytes()) for folder in (output, local_output)
        )
        assert ours.pop("created")
        assert theirs.pop("created")
        assert ours == theirs
        paths = sorted(path.relative_to(local_output) for path in local_output.rglob("*.parquet"))
        assert paths == sorted(path.relative_to(output) for path in output.rglob("*.parquet"))
        assert len(paths) > 8 * 4  # ranks × tables that each of them has
        for path in paths:
            assert_frame_equal(pl.read_parquet(output / path), pl.read_parquet(local_output / path))

    return compare


@pytest.fixture
def tasks(monkeypatch):
    """The functions that workers run, as a module that both sides import by its name."""
    monkeypatch.syspath_prepend(HERE)
    import tasks  # noqa: PLC0415

    return tasks
