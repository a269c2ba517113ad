"""The map over ranks on a real scheduler of Dask and two worker processes."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from importlib.metadata import PackageNotFoundError

import pytest

import tracekit
from tracekit.engine import dask, map_ranks, open_engine
from tracekit.errors import InputError, TracekitError, UsageError
from tracekit.results import write_result


@pytest.fixture
def folder(tmp_path):
    return tmp_path


def test_answers_come_in_the_order_of_the_items(cluster, tasks, folder):
    seen = []
    with open_engine(cluster.engine, n_tasks=5, folder=folder) as executor:
        answers = map_ranks(
            tasks.square,
            [5, 1, 4, 2, 3],
            executor=executor,
            on_done=lambda item, answer: seen.append((item, answer)),
        )
    assert answers == [25, 1, 16, 4, 9]
    assert sorted(seen) == [(1, 1), (2, 4), (3, 9), (4, 16), (5, 25)]
    assert list(folder.iterdir()) == []  # what told the workers that it is the same folder is gone


def test_the_file_of_the_scheduler_is_an_address(cluster, tasks, folder):
    with open_engine(f"dask:{cluster.file}", n_tasks=2, folder=folder) as executor:
        assert map_ranks(tasks.square, [1, 2], executor=executor) == [1, 4]


def test_tasks_run_in_workers_at_the_place_the_caller_is(cluster, tasks, folder, monkeypatch):
    monkeypatch.chdir(folder)
    with open_engine(cluster.engine, n_tasks=4, folder=folder.relative_to(folder)) as executor:
        places = map_ranks(tasks.place, [0, 1, 2, 3], executor=executor)
    assert os.getpid() not in {process for process, _, _ in places}
    assert {place for _, place, _ in places} == {folder}
    # two workers share this machine
    cores = len(os.sched_getaffinity(0))
    assert {threads for _, _, threads in places} == {max(1, cores // 2)}


@pytest.mark.slow
def test_an_analysis_is_that_of_one_process(cluster, healthy_traces, same_output, folder):
    converted, analysed = [], []
    result = tracekit.analyze(
        healthy_traces,
        folder=folder / "run",
        engine=cluster.engine,
        on_capture=lambda capture: converted.append(capture.rank),
        on_rank=analysed.append,
    )
    write_result(result, folder / "result.json")
    same_output(folder)
    assert sorted(converted) == sorted(analysed) == list(range(8))
    assert not list(folder.rglob(".seen-*"))


def test_an_error_of_a_task_comes_back_as_it_was(cluster, tasks, folder):
    with (
        open_engine(cluster.engine, n_tasks=3, folder=folder) as executor,
        pytest.raises(InputError) as caught,
    ):
        map_ranks(tasks.refuse_two, [1, 2, 3], executor=executor)
    assert (caught.value.message, caught.value.hint) == ("rank 2: not JSON", "Look at it")


def test_the_task_of_a_worker_killed_once_is_done_by_another(cluster, tasks, folder):
    markers = [folder / name for name in ("one", "two", "three")]
    for marker in markers[1:]:
        marker.touch()  # these do not kill theirs
    with open_engine(cluster.engine, n_tasks=3, folder=folder) as executor:
        answers = map_ranks(tasks.die_once, markers, executor=executor)
    assert answers == ["one", "two", "three"]
    assert markers[0].exists()


def test_what_kills_each_worker_is_named_and_nothing_else(cluster, tasks, folder):
    done = []
    with (
        open_engine(cluster.engine, n_tasks=6, folder=folder) as executor,
        pytest.raises(TracekitError) as caught,
    ):
        map_ranks(
            tasks.die_at_one,
            [0, 1, 2, 3, 4, 5],
            executor=executor,
            on_done=lambda item, _: done.append(item),
            name=lambda item: f"rank {item}",
        )
    assert caught.value.message.startswith("rank 1: 2 workers of Dask died over it, the last on")
    assert "--memory-limit" in caught.value.hint


def test_a_lost_scheduler_is_an_error_and_no_hang(new_cluster, tasks, folder):
    new_cluster.start_workers(1)
    markers = [folder / "one", folder / "two"]

    def kill_when_begun():
        while not markers[0].exists():
            time.sleep(0.02)
        new_cluster.scheduler.kill()

    killer = threading.Thread(target=kill_when_begun)
    killer.start()
    started_s = time.monotonic()
    with (
        pytest.raises(TracekitError) as caught,
        open_engine(new_cluster.engine, n_tasks=2, folder=folder) as executor,
    ):
        map_ranks(tasks.rest, markers, executor=executor, name=lambda item: f"rank {item.name}")
    killer.join()
    assert time.monotonic() - started_s < 30
    assert caught.value.message == (
        "the scheduler of Dask is lost; not finished: rank one, rank two"
    )
    assert "The same command goes on" in caught.value.hint


def test_a_scheduler_without_workers_is_an_error(new_cluster, monkeypatch):
    monkeypatch.setattr(dask, "WORKERS_WITHIN_S", 0.5)
    with (
        pytest.raises(TracekitError, match=r"has had no worker for 0\.5 s") as caught,
        open_engine(new_cluster.engine, n_tasks=2),
    ):
        pass
    assert "dask worker" in caught.value.hint


@pytest.mark.slow
def test_tasks_end_when_the_last_worker_is_gone(new_cluster, tasks, folder, monkeypatch):
    workers = new_cluster.start_workers(1)
    monkeypatch.setattr(dask, "WORKERS_WITHIN_S", 1.0)
    marker = folder / "one"

    def kill_when_begun():
        while not marker.exists():
            time.sleep(0.02)
        os.killpg(workers.pid, 9)  # the nanny too: nothing starts another

    killer = threading.Thread(target=kill_when_begun)
    killer.start()
    with (
        pytest.raises(TracekitError, match=r"Dask has had no worker for 1 s; not finished: "),
        open_engine(new_cluster.engine, n_tasks=2, folder=folder) as executor,
    ):
        map_ranks(tasks.rest, [marker, folder / "two"], executor=executor)
    killer.join()


def test_where_no_scheduler_answers_the_address_is_named(monkeypatch):
    monkeypatch.setattr(dask, "CONNECT_WITHIN_S", 1)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        engine = f"dask:tcp://127.0.0.1:{port}"
        with pytest.raises(TracekitError) as caught, open_engine(engine, n_tasks=2):
            pass
    assert caught.value.message.startswith(f"--engine {engine}: no scheduler answers within 1 s: ")
    assert "dask scheduler" in caught.value.hint


@pytest.mark.parametrize(
    ("address", "why"),
    [("host", "missing port"), ("no/such.json", "missing port"), ("ftp://host:1", "unknown")],
)
def test_what_is_no_address_is_bad_use(address, why):
    with pytest.raises(UsageError, match=f"neither a file nor an address: {why}") as caught:
        open_engine(f"dask:{address}", n_tasks=2).__enter__()
    assert "dask:tcp://HOST:8786" in caught.value.hint


@pytest.mark.parametrize("spec", ["dask", "dask:"])
def test_an_address_is_needed(spec):
    with pytest.raises(UsageError, match="which scheduler"), open_engine(spec, n_tasks=2):
        pass


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError) as caught, open_engine("dask:tcp://x:1", n_tasks=2):
        pass
    assert caught.value.message == "--engine dask: distributed is not installed"
    assert caught.value.hint == "pip install 'tracekit-gpu[dask]'"


def test_a_fault_of_the_environment_is_no_fault_of_a_rank(cluster, tasks, folder):
    with (
        open_engine(cluster.engine, n_tasks=2, folder=folder) as executor,
        pytest.raises(ModuleNotFoundError, match="no_such_module"),
    ):
        map_ranks(tasks.missing_module, [1, 2], executor=executor)


class WithoutTracekit:
    """Stands for a client whose second worker cannot import tracekit."""

    def run(self, _function, name, *, on_error):
        assert on_error == "return"
        return {"tcp://one:1": "0.1.0", "tcp://two:2": PackageNotFoundError(name)}


def test_workers_without_tracekit_are_named():
    with pytest.raises(UsageError, match="not installed on 1 of 2 workers of Dask: tcp://two:2"):
        dask._check_installed(WithoutTracekit())


def test_a_scheduler_without_tracekit_is_bad_use():
    error = RuntimeError("Error during deserialization of the task graph")
    error.__cause__ = ModuleNotFoundError("No module named 'tracekit'")
    assert "scheduler or a worker of Dask" in dask._explained(error).message


def test_one_task_needs_no_cluster(tasks):
    with open_engine("dask:tcp://nowhere:1", n_tasks=1) as executor:
        assert map_ranks(tasks.square, [3], executor=executor) == [9]
