"""What `import tracekit` offers: runs, LazyFrames, typed results."""

from __future__ import annotations

import json
import subprocess
import sys

import polars as pl
import pytest

import tracekit
from tracekit.errors import InputError, UsageError
from tracekit.schema import TABLES


@pytest.fixture
def source(tmp_path):
    """Traces of two ranks, three kernels each, the third started at 3000 µs."""
    folder = tmp_path / "job"
    folder.mkdir()
    for rank in (0, 1):
        events = [
            {
                "ph": "X",
                "cat": "kernel",
                "name": f"k{number}",
                "pid": 0,
                "tid": 7,
                "ts": 1000 * number,
                "dur": 10,
                "args": {"device": 0, "stream": 7},
            }
            for number in (1, 2, 3)
        ]
        document = {
            "distributedInfo": {"rank": rank, "world_size": 2},
            "baseTimeNanoseconds": 10**18,
            "traceEvents": events,
            "traceName": "x",
        }
        (folder / f"rank{rank}.json").write_text(json.dumps(document), "utf-8")
    return folder


def test_tables_are_lazy_frames_of_the_declared_schema(source, tmp_path):
    run = tracekit.convert(source, tmp_path / "run")
    for name, table in TABLES.items():
        frame = run.scan(name, 0)
        assert isinstance(frame, pl.LazyFrame)
        assert frame.collect_schema() == table.schema


def test_times_count_from_the_first_event_of_the_run(source, tmp_path):
    run = tracekit.convert(source, tmp_path / "run")
    assert run.manifest.epoch_ns == 10**18 + 1_000_000
    assert run.scan("kernels", 1).collect()["start_ns"].to_list() == [0, 1_000_000, 2_000_000]


def test_a_run_is_opened_again(source, tmp_path):
    made = tracekit.convert(source, tmp_path / "run")
    assert tracekit.open_run(tmp_path / "run").manifest == made.manifest


def test_traces_a_run_folder_and_a_run_give_the_same_result(source, tmp_path):
    run = tracekit.convert(source, tmp_path / "run")
    results = [tracekit.analyze(each, engine="local:1") for each in (source, tmp_path / "run", run)]
    wholes = [result.whole for result in results]
    assert wholes[0] == wholes[1] == wholes[2]
    assert results[0].findings == results[2].findings


def test_nothing_is_written_where_no_folder_is_given(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    tracekit.analyze(source, engine="local:1")
    assert sorted(tmp_path.rglob("*")) == before


def test_progress_is_told_rank_by_rank(source, tmp_path):
    seen = []
    tracekit.analyze(
        source,
        folder=tmp_path / "run",
        engine="local:1",
        on_found=seen.append,
        on_capture=lambda capture: seen.append((capture.rank, capture.n_events)),
        on_rank=seen.append,
    )
    assert seen == [2, (0, 3), (1, 3), 0, 1]


def test_ranks_and_steps_that_do_not_exist_are_bad_use(source, tmp_path):
    run = tracekit.convert(source, tmp_path / "run")
    with pytest.raises(UsageError, match="no trace of rank 9"):
        tracekit.analyze(run, ranks=[9])
    with pytest.raises(UsageError, match="steps 3:3"):
        tracekit.analyze(run, steps=(3, 3))


def test_no_ranks_at_all_are_bad_use(source, tmp_path):
    run = tracekit.convert(source, tmp_path / "run")
    with pytest.raises(UsageError):
        tracekit.analyze(run, ranks=[])


def test_what_is_no_trace_is_an_input_error(tmp_path):
    (tmp_path / "a.json").write_text("{}", "utf-8")
    with pytest.raises(InputError, match="no trace of a profiler"):
        tracekit.analyze(tmp_path / "a.json")


def test_a_redacted_result_needs_a_redacted_run(source, tmp_path):
    tracekit.convert(source, tmp_path / "run")
    with pytest.raises(UsageError, match="cannot be redacted any more"):
        tracekit.analyze(tmp_path / "run", redact=True)
    redacted = tracekit.convert(source, tmp_path / "run", redact=True)
    assert tracekit.analyze(tmp_path / "run", redact=True).source.path == redacted.manifest.source


def test_importing_tracekit_loads_neither_polars_nor_pyarrow():
    code = "import sys, tracekit; print({'polars', 'pyarrow', 'plotly'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
