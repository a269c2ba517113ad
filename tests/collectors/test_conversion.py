"""Files of many ranks become one run: resumed, complete, and never lost for one bad file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from tracekit import api
from tracekit.collectors import kineto
from tracekit.errors import InputError, TracekitError
from tracekit.store import capture_path, open_run

WRITER = """
import sys, time
from tracekit import api, store
from tracekit.collectors.chrome_trace import events

def wait():
    print("ready", flush=True)
    for _ in range(6000):  # one long sleep goes on where another thread gets the signal
        time.sleep(0.01)

if sys.argv[3] == "inside a rank":  # stop after the first group of rows is on disk
    store.ROWS_PER_GROUP = 500
    events.CHUNK_BYTES = 1 << 16
    group = store.TableWriter._write_group
    def slow(self, table, rows):
        group(self, table, rows)
        if self._rank == 1:
            wait()
    store.TableWriter._write_group = slow

def seen(capture):
    if sys.argv[3] == "between ranks" and capture.rank == 1:
        wait()

api.convert(sys.argv[1], sys.argv[2], engine="local:1", on_capture=seen)
"""


@pytest.fixture
def job(tmp_path, trace, kernel):
    """A folder of traces of so many ranks, each with `n` kernels and host operators."""

    def write(n_ranks=3, n=5, folder="job"):
        for rank in range(n_ranks):
            events = [kernel(number) for number in range(1, n + 1)]
            events += [
                kernel(number, cat="cpu_op", name="aten::mm", tid=3, pid=9)
                for number in range(1, n + 1)
            ]
            info = {"rank": rank, "world_size": n_ranks}
            document = trace(events, distributedInfo=info, host_name=f"node{rank}")
            path = tmp_path / folder / f"rank{rank}.json"
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(document), "utf-8")
        return tmp_path / folder

    return write


def written(folder):
    """Each file below a folder and when it was written."""
    return {
        path.relative_to(folder).as_posix(): path.stat().st_mtime_ns
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_every_rank_has_its_tables_and_its_record(job, tmp_path):
    run = api.convert(job(), tmp_path / "run")
    assert run.ranks == (0, 1, 2)
    assert run.manifest.missing_ranks == ()
    for rank in run.ranks:
        assert run.scan("kernels", rank).collect().height == 5
        assert capture_path(run.folder, rank).is_file()
    assert not list((tmp_path / "run").rglob("*.tmp"))


def test_an_unchanged_source_is_not_converted_again(job, tmp_path):
    source = job()
    api.convert(source, tmp_path / "run")
    before = written(tmp_path / "run")
    api.convert(source, tmp_path / "run")
    assert written(tmp_path / "run") == before


def test_no_worker_starts_for_ranks_that_are_there(job, tmp_path, monkeypatch):
    folder = job()
    api.convert(folder, tmp_path / "run", engine="local:1")

    def refused(*_args, **_kwargs):
        pytest.fail("a worker would start")

    monkeypatch.setattr("concurrent.futures.ProcessPoolExecutor.submit", refused)
    seen = []
    run = api.convert(
        folder, tmp_path / "run", engine="local:2", on_capture=lambda c: seen.append(c.rank)
    )
    assert run.ranks == (0, 1, 2)
    assert seen == [0, 1, 2]


def test_a_changed_file_is_converted_again_and_no_other(job, tmp_path, trace):
    source = job()
    api.convert(source, tmp_path / "run")
    before = written(tmp_path / "run")
    text = json.dumps(trace(7, distributedInfo={"rank": 1, "world_size": 3}))
    (source / "rank1.json").write_text(text, "utf-8")
    run = api.convert(source, tmp_path / "run")
    assert run.scan("kernels", 1).collect().height == 7
    assert run.scan("cpu_ops", 1).collect().height == 0
    after = written(tmp_path / "run")
    kept = [name for name in before if "000001" not in name and name != "manifest.json"]
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}


def test_other_code_converts_again(job, tmp_path, monkeypatch):
    source = job(1)
    api.convert(source, tmp_path / "run")
    before = written(tmp_path / "run")["captures/rank=000000.json"]
    monkeypatch.setattr(kineto, "code_version", lambda: "other")
    monkeypatch.setattr(
        "tracekit.collectors.sources.conversion._code", lambda _collector_id: "other"
    )
    api.convert(source, tmp_path / "run")
    assert written(tmp_path / "run")["captures/rank=000000.json"] > before


def test_a_table_that_is_gone_is_written_again(job, tmp_path):
    source = job(1)
    run = api.convert(source, tmp_path / "run")
    (run.folder / "kernels/rank=000000.parquet").unlink()
    run = api.convert(source, tmp_path / "run")
    assert run.scan("kernels", 0).collect().height == 5


def test_a_file_that_fails_costs_no_other_and_is_named(job, tmp_path):
    source = job()
    (source / "rank1.json").write_text('{"traceEvents": [{"ph": "M", "name": "x"}]}', "utf-8")
    run = api.convert(source, tmp_path / "run")
    assert run.ranks == (0, 2)
    assert run.manifest.missing_ranks == (1,)
    assert any("rank1.json" in other and "profiler" in other for other in run.manifest.others)


def test_an_odd_failure_costs_no_other_and_is_named(job, tmp_path, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError("by zero")

    source = job(2)
    (source / "rank1.json").rename(source / "rank1.bad.json")
    monkeypatch.setattr(
        "tracekit.collectors.kineto.add",
        lambda collected, writer, groups, clock: (
            fail() if writer._rank == 1 else original(collected, writer, groups, clock)
        ),
    )
    from tracekit.collectors.chrome_trace.tables import add as original  # noqa: PLC0415

    run = api.convert(source, tmp_path / "run", engine="local:1")
    assert run.ranks == (0,)
    assert any("ZeroDivisionError at test_conversion.py" in each for each in run.manifest.others)


def test_when_all_files_fail_the_error_names_them(job, tmp_path):
    source = job(2)
    for rank in (0, 1):
        text = f'{{"traceEvents": [{{"ph": "M", "name": "x{rank}"}}]}}'
        (source / f"rank{rank}.json").write_text(text, "utf-8")
    with pytest.raises(InputError, match=r"none of 2 files could be read: .*rank0\.json"):
        api.convert(source, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_unreadable_file_is_named(job, tmp_path, monkeypatch):
    source = job(2)
    original = kineto.batches

    def refuse(path, reading):
        if path.name == "rank1.json":
            raise PermissionError(13, "Permission denied", str(path))
        return original(path, reading)

    monkeypatch.setattr(kineto, "batches", refuse)
    run = api.convert(source, tmp_path / "run", engine="local:1")
    assert any("rank1.json: Permission denied" in other for other in run.manifest.others)


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"schema_version": 1}', "\xff", "[" * 99_999])
def test_a_damaged_manifest_is_written_again(job, tmp_path, damage):
    source = job(2)
    api.convert(source, tmp_path / "run")
    (tmp_path / "run/manifest.json").write_text(damage, "latin-1")
    with pytest.raises(TracekitError):
        open_run(tmp_path / "run")
    assert api.convert(source, tmp_path / "run").ranks == (0, 1)


@pytest.mark.parametrize("damage", ["", "{", "[]"])
def test_a_damaged_record_of_a_rank_is_converted_again(job, tmp_path, damage):
    source = job(2)
    api.convert(source, tmp_path / "run")
    capture_path(tmp_path / "run", 1).write_text(damage, "utf-8")
    assert api.convert(source, tmp_path / "run").ranks == (0, 1)


def test_another_run_in_the_folder_is_replaced(job, tmp_path):
    api.convert(job(3), tmp_path / "run")
    run = api.convert(job(2, folder="other"), tmp_path / "run")
    assert run.ranks == (0, 1)
    assert not capture_path(tmp_path / "run", 2).exists()


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["inside a rank", "between ranks"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_conversion_that_was_stopped_goes_on(job, tmp_path, moment, how):
    source = job(3, n=2000)
    command = [sys.executable, "-c", WRITER, str(source), str(tmp_path / "run"), moment]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(how)
        process.wait(20)
    n_done = 1 if moment == "inside a rank" else 2
    partial = open_run(tmp_path / "run")
    assert len(partial.ranks) >= 1  # the manifest is at most two seconds behind
    assert partial.scan("kernels", 0).collect().height == 2000
    assert any("cut off" in other for other in partial.manifest.others)
    done = [capture_path(tmp_path / "run", rank) for rank in range(n_done)]
    before = [path.stat().st_mtime_ns for path in done]
    run = api.convert(source, tmp_path / "run")
    assert run.ranks == (0, 1, 2)
    assert [path.stat().st_mtime_ns for path in done] == before
    assert not list((tmp_path / "run").rglob("*.tmp"))
    assert not any("cut off" in other for other in run.manifest.others)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path, trace, kernel):
    lines = [json.dumps(kernel(number, cat="cpu_op", tid=3)) for number in range(1, 2001)]
    block = ",\n".join(lines)
    text = json.dumps(trace([]))[: -len('], "traceName": "rank0.json"}')]
    command = (
        "import resource, sys; from tracekit import api;"
        "api.convert(sys.argv[1], sys.argv[2]);"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    peaks_kib = []
    for n_blocks in (140, 280):  # 41 and 83 MB
        path = tmp_path / f"{n_blocks}.json"
        with path.open("w", encoding="utf-8") as out:
            out.write(text)
            out.writelines([block + ",\n"] * (n_blocks - 1))
            out.write(block + '], "traceName": "rank0.json"}')
        done = subprocess.run(
            [sys.executable, "-c", command, str(path), str(tmp_path / f"run{n_blocks}")],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"POLARS_MAX_THREADS": "1"},
        )
        peaks_kib.append(int(done.stdout))
        run = open_run(tmp_path / f"run{n_blocks}")
        assert run.n_rows("cpu_ops") == 2000 * n_blocks
    assert path.stat().st_size > 40e6
    assert peaks_kib[1] - peaks_kib[0] < 16 << 10  # 16 MiB: what one allocator may keep


def test_a_file_name_that_is_no_text_can_be_said(job, tmp_path):
    source = job(2)
    (source / "rank1.json").rename(source / os.fsdecode(b"rank1\xff.json"))
    run = api.convert(source, tmp_path / "run")
    assert run.ranks == (0, 1)
    assert run.capture(1).source.path.endswith(r"rank1\xff.json")
    before = written(tmp_path / "run")
    api.convert(source, tmp_path / "run")
    assert written(tmp_path / "run") == before


def test_a_host_name_that_is_no_text_can_be_said(job, tmp_path):
    source = job(1)
    path = source / "rank0.json"
    path.write_text(path.read_text("utf-8").replace("node0", r"n\ud800o"), "utf-8")
    assert api.convert(source, tmp_path / "run").capture(0).host == "n\ufffdo"
