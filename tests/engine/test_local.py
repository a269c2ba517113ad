"""Work on ranks: in order, in processes, and with errors that name the rank."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool

import pytest

from tracekit.engine import _mapping, engine_forms, engines, local, map_ranks, open_engine
from tracekit.errors import InputError, TracekitError, UsageError


def square(number):
    return number * number


def refuse_two(number):
    if number == 2:
        raise InputError("rank 2: not JSON", hint="Look at it")
    return number


def process_and_threads(_item):
    return os.getpid(), os.environ.get("POLARS_MAX_THREADS")


def die_at_one(number):
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr(local, "n_cores", lambda: 2)


@pytest.fixture
def eight_cores(monkeypatch):
    monkeypatch.setattr(local, "n_cores", lambda: 8)


def test_one_task_runs_in_this_process():
    with open_engine("local", n_tasks=1) as executor:
        ((process, _),) = map_ranks(process_and_threads, [0], executor=executor)
    assert process == os.getpid()


def test_one_worker_runs_in_this_process():
    with open_engine("local:1", n_tasks=4) as executor:
        assert map_ranks(square, [1, 2, 3, 4], executor=executor) == [1, 4, 9, 16]


def test_in_this_process_each_task_is_reported_before_the_next_begins():
    seen = []
    with open_engine("local:1", n_tasks=2) as executor:
        map_ranks(
            lambda item: seen.append(f"run {item}"),
            [1, 2],
            executor=executor,
            on_done=lambda item, _answer: seen.append(f"done {item}"),
        )
    assert seen == ["run 1", "done 1", "run 2", "done 2"]


def test_no_tasks_need_no_worker():
    with open_engine("local", n_tasks=0) as executor:
        assert map_ranks(square, [], executor=executor) == []


@pytest.mark.usefixtures("two_cores")
def test_answers_come_in_the_order_of_the_items():
    seen = []
    with open_engine("local", n_tasks=5) as executor:
        answers = map_ranks(
            square,
            [5, 1, 4, 2, 3],
            executor=executor,
            on_done=lambda item, answer: seen.append((item, answer)),
        )
    assert answers == [25, 1, 16, 4, 9]
    assert sorted(seen) == [(1, 1), (2, 4), (3, 9), (4, 16), (5, 25)]


@pytest.mark.usefixtures("eight_cores")
def test_workers_times_threads_are_the_cores(monkeypatch):
    monkeypatch.setenv("POLARS_MAX_THREADS", "7")
    with open_engine("local:2", n_tasks=4) as executor:
        answers = map_ranks(process_and_threads, [0, 1, 2, 3], executor=executor)
    # 8 cores / 2 workers = 4 threads each
    assert {threads for _, threads in answers} == {"4"}
    assert os.getpid() not in {process for process, _ in answers}
    assert os.environ["POLARS_MAX_THREADS"] == "7"


@pytest.mark.usefixtures("two_cores")
def test_the_variable_is_gone_again_when_it_was_not_set(monkeypatch):
    monkeypatch.delenv("POLARS_MAX_THREADS", raising=False)
    with open_engine("local", n_tasks=2):
        assert os.environ["POLARS_MAX_THREADS"] == "1"
    assert "POLARS_MAX_THREADS" not in os.environ


@pytest.mark.parametrize("spec", ["local", "local:1"])
@pytest.mark.usefixtures("two_cores")
def test_an_error_of_a_task_comes_back_as_it_was(spec):
    with open_engine(spec, n_tasks=3) as executor, pytest.raises(InputError) as caught:
        map_ranks(refuse_two, [1, 2, 3], executor=executor)
    assert (caught.value.message, caught.value.hint) == ("rank 2: not JSON", "Look at it")


@pytest.mark.usefixtures("two_cores")
def test_a_killed_worker_names_what_was_not_finished():
    with open_engine("local", n_tasks=2) as executor, pytest.raises(TracekitError) as caught:
        map_ranks(die_at_one, [1, 1], executor=executor, name=lambda item: f"rank {item}")
    assert "not finished: rank 1, rank 1" in caught.value.message
    assert "memory" in caught.value.hint


def test_many_unfinished_items_are_counted():
    error = _mapping._lost(BrokenProcessPool(), [f"rank {number}" for number in range(8)])
    assert error.message.endswith("rank 0, rank 1, rank 2, rank 3, rank 4 and 3 more")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("cloud", "--engine cloud: unknown"),
        ("local:", "'' is not a number"),
        ("local:0", "'0' is not a number"),
        ("local:-2", "'-2' is not a number"),
        ("local:²", "'²' is not a number"),
    ],
)
def test_an_engine_that_is_not_there_is_bad_use(spec, message):
    with pytest.raises(UsageError, match=message), open_engine(spec, n_tasks=4):
        pass


def test_engines_are_found_and_listed_with_the_default_first():
    assert list(engines()) == ["dask", "local", "mpi"]
    assert engine_forms() == "local, local:N processes, dask:ADDRESS, mpi"


SCRIPT = """
import polars as pl
from tracekit.engine import map_ranks, open_engine

if __name__ == "__main__":
    query = pl.LazyFrame({"a": range(1000)}).group_by(pl.col("a") % 7).len().sort("a")
    query.collect()
    with open_engine("local:2", n_tasks=2) as executor:
        # A forked worker would hang here.
        print(map_ranks(pl.LazyFrame.collect, [query, query.head(1)], executor=executor))
"""


def test_workers_run_queries_after_a_query_in_the_parent(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=120, check=True
    )
    assert "shape: (7, 2)" in done.stdout
    assert "shape: (1, 2)" in done.stdout


SLOW_SCRIPT = """
import sys
import time
from pathlib import Path
from tracekit.engine import map_ranks, open_engine

def rest(name):
    Path(name).touch()
    time.sleep(300)

if __name__ == "__main__":
    with open_engine("local:2", n_tasks=3) as executor:
        map_ranks(rest, ["one", "two", "three"], executor=executor)
"""


def test_an_interrupt_ends_the_workers_at_once(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SLOW_SCRIPT, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, script],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        deadline_s = time.monotonic() + 60
        while not ((tmp_path / "one").exists() and (tmp_path / "two").exists()):
            assert time.monotonic() < deadline_s, "the workers do not start"
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)  # what Ctrl-C does
        _, errors = process.communicate(timeout=30)
    assert errors.count("Traceback") == 1, errors
    assert errors.rstrip().endswith("KeyboardInterrupt")
