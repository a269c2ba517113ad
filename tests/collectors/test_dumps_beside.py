"""Dumps of flight recorders beside traces, in several formats, and in a recording of ours."""

from __future__ import annotations

import json
import pickle

import pytest

import tracekit
from tests.collectors.test_recorded import CREATED_NS, record
from tracekit.collectors.sources.inventory import inventory
from tracekit.errors import InputError
from tracekit.findings import Status

NOW_NS = CREATED_NS + 5_000_000_000
STACKS = """\
Thread MainThread:
  File "/home/ada/job/train.py", line 12, in main
    step()
  File "/home/ada/job/data.py", line 88, in read
    self.lock.acquire()
Thread loader:
  File "/usr/lib/threading.py", line 324, in wait
    waiter.acquire()
"""


def dump(n_calls, *, ended=(), frames=None, n_ranks=2):
    """A rank that made the calls 0 to `n_calls` - 1, a second apart, of a group of all ranks."""
    entries = [
        {
            "record_id": number,
            "pg_id": "0",
            "process_group": ("0", "default_pg"),
            "collective_seq_id": number,
            "profiling_name": "nccl:all_reduce",
            "time_created_ns": NOW_NS + number * 1_000_000_000,
            "state": "completed" if number in ended else "scheduled",
            "retired": number in ended,
            "is_p2p": False,
            **({"frames": frames} if frames else {}),
        }
        for number in range(n_calls)
    ]
    group = {"name": "0", "desc": "default_pg", "ranks": str(list(range(n_ranks)))}
    return {"version": "2.10", "pg_config": {"0": group}, "entries": entries}


def put(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    is_json = path.suffix == ".json"
    path.write_bytes(json.dumps(value).encode() if is_json else pickle.dumps(value, protocol=2))


def hung(folder, n_ranks=2):
    """Rank 1 never makes call 2."""
    for rank in range(n_ranks):
        n_calls = 2 if rank == 1 else 3
        put(folder / f"nccl_trace_rank_{rank}", dump(n_calls, ended={0, 1}, n_ranks=n_ranks))


def traces(runs, folder, n_ranks=2, world_size=2):
    for rank in range(n_ranks):
        events = [("kernel", "gemm", 10, 5, {"device": 0, "stream": 7})]
        runs.kineto(folder, events, rank=rank, world_size=world_size)


def hang_of(source):
    result = tracekit.analyze(source, engine="local:1")
    return next(each for each in result.findings if each.id == "collective-hang"), result


def listed(tmp_path):
    (tmp_path / "unpacked").mkdir()
    return inventory([tmp_path / "job"], tmp_path / "unpacked")


def test_dumps_join_the_traces_that_they_lie_beside(runs, tmp_path):
    traces(runs, tmp_path / "job/traces")
    hung(tmp_path / "job/dumps")
    found, result = hang_of(tmp_path / "job")
    assert (found.status, found.ranks) == (Status.FOUND, (1,))
    assert len(result.whole) == 2  # what the devices did is there too


def test_dumps_of_ranks_without_a_trace_stay_a_run_of_their_own(runs, tmp_path):
    traces(runs, tmp_path / "job/traces", n_ranks=2, world_size=4)
    hung(tmp_path / "job/dumps", n_ranks=4)
    names = [(run.collector.id, len(run.files)) for run in listed(tmp_path).runs]
    assert names == [("kineto", 2), ("flight-recorder", 4)]


def test_of_two_sets_of_dumps_the_later_one_joins(runs, tmp_path):
    traces(runs, tmp_path / "job/traces")
    for folder, n_calls in (("first", 2), ("second", 4)):
        for rank in range(2):
            late = dump(n_calls)
            for entry in late["entries"]:
                entry["time_created_ns"] += n_calls * 60_000_000_000
            put(tmp_path / f"job/{folder}/nccl_trace_rank_{rank}", late)
    found = listed(tmp_path)
    assert [path.parent.name for file in found.runs[0].files for _, path in file.also] == [
        "second"
    ] * 2
    assert [run.collector.id for run in found.runs] == ["kineto", "flight-recorder"]


@pytest.mark.parametrize(("n_json", "n_pickle", "kept"), [(3, 2, ".json"), (2, 3, ".pickle")])
def test_of_two_formats_of_a_dump_the_one_with_the_later_call_counts(
    tmp_path, n_json, n_pickle, kept
):
    put(tmp_path / "job/rank=000000.json", dump(n_json))
    put(tmp_path / "job/rank=000000.pickle", dump(n_pickle))
    found = listed(tmp_path)
    assert [file.path.suffix for run in found.runs for file in run.files] == [kept]
    assert len(found.left_out) == 1
    assert "was taken of this rank later" in found.left_out[0]


def test_of_two_formats_of_one_moment_the_one_with_stacks_counts(tmp_path):
    put(tmp_path / "job/rank=000000.json", dump(2))
    frames = [{"filename": "train.py", "line": 4, "name": "step"}]
    put(tmp_path / "job/rank=000000.pickle", dump(2, frames=frames))
    assert [file.path.suffix for file in listed(tmp_path).runs[0].files] == [".pickle"]


@pytest.fixture
def recording(tmp_path):
    """A job that recorded a window of two ranks, converted, and stood still later on."""
    folder = tmp_path / "job"
    record(folder, 0, 10)
    tracekit.open_run(folder)
    dumps = folder / "attempt=0/flight_recorder"
    for rank, n_calls in ((0, 3), (1, 2)):
        name = dumps / f"rank={rank:06d}"
        put(name.with_suffix(".json"), dump(n_calls, ended={0, 1}))
        frames = [{"filename": "/home/ada/job/train.py", "line": 4, "name": "reduce"}]
        put(name.with_suffix(".pickle"), dump(n_calls, ended={0, 1}, frames=frames))
        name.with_suffix(".stacks.txt").write_text(STACKS)
    return folder


def test_a_recorded_job_that_stands_still_says_who_and_where(recording):
    found, _ = hang_of(recording)
    assert found.ranks == (1,)
    assert found.evidence[2].rows == (
        (1, "now", "/home/ada/job/data.py:88 read\n/home/ada/job/train.py:12 main"),
        (1, "last call: nccl:all_reduce", "/home/ada/job/train.py:4 reduce"),
    )


def test_dumps_are_joined_once(recording):
    run = tracekit.open_run(recording)
    table = run.folder / "tables"
    before = {path: path.stat().st_mtime_ns for path in table.rglob("*flight*/*")}
    tracekit.open_run(recording)
    assert {path: path.stat().st_mtime_ns for path in table.rglob("*flight*/*")} == before


def test_a_job_that_went_on_stands_still_no_longer(recording):
    for rank in range(2):  # a window ended after the pickles were written
        path = recording / f"attempt=0/flight_recorder/rank={rank:06d}.json"
        put(path, dump(9 - rank, ended=set(range(8))))
    found, _ = hang_of(recording)
    assert found.status is Status.SKIPPED


def test_only_the_last_window_of_the_attempt_is_joined(recording):
    record(recording, 0, 20)
    first = tracekit.analyze(recording, run="attempt=0/step=00000010", engine="local:1")
    assert next(f for f in first.findings if f.id == "collective-hang").status is Status.SKIPPED
    assert hang_of(recording)[0].ranks == (1,)


def test_dumps_of_ranks_that_recorded_no_window_are_pointed_at(recording):
    put(recording / "attempt=0/flight_recorder/rank=000002.pickle", dump(1))
    found, _ = hang_of(recording)
    assert found.status is Status.SKIPPED
    (note,) = tracekit.open_run(recording).manifest.others
    assert note.endswith(f"tracekit analyze {recording / 'attempt=0/flight_recorder'}")


def test_a_job_that_stood_still_before_its_first_window_says_where_to_look(tmp_path):
    folder = tmp_path / "job"
    attempt = folder / "attempt=0"
    put(attempt / "flight_recorder/rank=000000.pickle", dump(1))
    (attempt / "job.json").write_text(json.dumps({"key": "k", "created_ns": CREATED_NS}))
    with pytest.raises(InputError) as refused:
        tracekit.analyze(folder, engine="local:1")
    assert refused.value.hint.startswith("See where it stands: tracekit analyze ")


def test_the_folder_of_dumps_is_one_run_with_stacks(recording):
    found, _ = hang_of(recording / "attempt=0/flight_recorder")
    assert found.ranks == (1,)
    assert found.evidence[2].rows[0][1] == "now"


def test_paths_in_stacks_are_hidden(recording, tmp_path):
    source = recording / "attempt=0/flight_recorder"
    run = tracekit.convert(source, tmp_path / "run", redact=True, engine="local:1")
    for table in ("flight_stacks", "flight_records"):
        text = "".join(run.scan_all(table).collect()["stack"].drop_nulls())
        assert "ada" not in text
        assert "path-" in text
