"""Workers that somebody else started are found fit before their task begins."""

from __future__ import annotations

import os
import pickle
import platform
from dataclasses import replace
from functools import partial

import pytest

from tracekit.engine import ALLOCATORS, Work, _worker
from tracekit.engine._mapping import InProcess
from tracekit.engine._worker import OnWorkers, run_task
from tracekit.errors import InputError, UsageError


@pytest.fixture
def on_workers():
    """An executor whose worker is this process."""
    opened = []

    def make(**work):
        opened.append(OnWorkers(InProcess(), Work(n_tasks=2, **work)))
        return opened[-1]

    yield make
    for executor in opened:
        executor.close()


@pytest.fixture(autouse=True)
def this_process_as_a_worker(monkeypatch):
    monkeypatch.setattr(_worker, "SEEN_WITHIN_S", 0.0)
    for name in ("POLARS_MAX_THREADS", *ALLOCATORS):
        monkeypatch.setenv(name, "")  # so that it is put back at the end
        monkeypatch.delenv(name)


def terms_of(executor):
    executor.submit(len, "").result()
    return executor._terms


LENGTH = pickle.dumps(partial(len, "four"))


def test_a_fit_worker_runs_the_task(on_workers, tmp_path):
    assert run_task(terms_of(on_workers(folder=tmp_path)), LENGTH) == 4


def test_other_versions_are_refused_before_the_task_is_unpickled(on_workers, tmp_path):
    terms = terms_of(on_workers(folder=tmp_path))
    theirs = {**terms.versions, "polars": "1.0.0"}
    with pytest.raises(UsageError) as caught:
        run_task(replace(terms, versions=theirs), b"no pickle")
    assert caught.value.message.startswith(f"the worker on {platform.node()} has tracekit-gpu ")
    assert caught.value.message.endswith("polars 1.0.0")
    assert "same versions" in caught.value.hint


def test_a_like_folder_on_another_file_system_is_not_the_folder(on_workers, tmp_path):
    executor = on_workers(folder=tmp_path)
    terms = terms_of(executor)
    executor.close()  # as if this were another machine, where the folder is there and the file not
    with pytest.raises(InputError, match="does not see") as caught:
        run_task(terms, LENGTH)
    assert "share" in caught.value.hint
    assert "TMPDIR" in caught.value.hint


def test_traces_that_a_worker_does_not_see_are_named(on_workers, tmp_path):
    there, away = tmp_path / "rank0.json", tmp_path / "rank1.json"
    there.touch()
    executor = on_workers(folder=tmp_path, files=(there, away))
    with pytest.raises(InputError, match=r"does not see .*rank1\.json"):
        executor.submit(len, "").result()


def test_a_run_that_can_only_be_read_is_looked_for_itself(on_workers, tmp_path):
    (tmp_path / "derived").touch()  # no folder can be made here
    assert terms_of(on_workers(folder=tmp_path)).sees == (tmp_path,)


def test_absolute_paths_leave_the_worker_where_it_is(on_workers, tmp_path, monkeypatch):
    assert terms_of(on_workers(folder=tmp_path)).here is None
    monkeypatch.chdir(tmp_path)
    assert terms_of(on_workers(folder=tmp_path.relative_to(tmp_path))).here == tmp_path


def test_the_allocator_gives_pages_back_as_under_the_command(on_workers, tmp_path):
    for variable, value in ALLOCATORS.items():
        assert on_workers(folder=tmp_path).submit(os.getenv, variable).result() == value


def test_the_threads_that_somebody_set_stay(on_workers, tmp_path, monkeypatch):
    monkeypatch.setenv("POLARS_MAX_THREADS", "3")
    assert on_workers(folder=tmp_path).submit(os.getenv, "POLARS_MAX_THREADS").result() == "3"


def test_the_caches_of_a_run_outlive_the_engine(on_workers, tmp_path):
    executor = on_workers(folder=tmp_path)
    terms_of(executor)
    (tmp_path / "derived" / "table").mkdir()
    executor.close()
    assert [path.name for path in (tmp_path / "derived").iterdir()] == ["table"]
