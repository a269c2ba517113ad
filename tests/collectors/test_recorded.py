"""What a hook recorded becomes runs, whatever was killed on the way."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import tracekit
from tracekit import facts
from tracekit.collectors.sources import recorded
from tracekit.collectors.sources.recorded import MANIFEST, finished, is_recording, picked, windows
from tracekit.errors import InputError, UsageError
from tracekit.facts import ClockPair, Facts, Layout, Sample, Window

CREATED_NS = 1_700_000_000 * 10**9


def trace(n_events=50, rank=0):
    events = [
        {"ph": "X", "cat": "cpu_op", "name": f"op{i}", "pid": 1, "tid": 1, "ts": 100 + i, "dur": 1}
        for i in range(n_events)
    ]
    info = {"rank": rank, "world_size": 2, "backend": "gloo"}
    heading = {"schemaVersion": 1, "distributedInfo": info, "baseTimeNanoseconds": CREATED_NS}
    return json.dumps(heading | {"traceEvents": events, "traceName": "x.json"})


@pytest.fixture
def recording(tmp_path):
    """A recording of two ranks that nobody has converted: attempt 0, window of step 10."""
    folder = tmp_path / "job"
    record(folder, 0, 10)
    return folder


def record(folder, attempt, step, ranks=(0, 1), **noted):
    place = folder / f"attempt={attempt}"
    (place / "ranks").mkdir(parents=True, exist_ok=True)
    (place / "job.json").write_text(json.dumps({"key": "k", "created_ns": CREATED_NS}))
    raw = place / f"step={step:08d}/raw"
    raw.mkdir(parents=True)
    for rank in ranks:
        (raw / f"rank={rank:06d}.json").write_text(trace(rank=rank))
        facts.write(place / f"ranks/rank={rank:06d}.json", who(rank, attempt))
        facts.write(raw / f"rank={rank:06d}.window.json", window(rank, step, **noted))
    return raw


def who(rank, attempt=0):
    return Facts(
        rank=rank,
        local_rank=rank,
        world_size=2,
        host="a",
        pid=1,
        attempt=attempt,
        layout=Layout(sizes={"dp": 2}, place={"dp": rank}, source="DDP"),
        versions={"torch": "2.13.0"},
        environment={"NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": str(rank)},
    )


def window(rank, step, **noted):
    known = {
        "n_steps": 3,
        "is_whole": True,
        "started_ns": CREATED_NS,
        "ended_ns": CREATED_NS + 10**9,
        "size_bytes": 1,
        "save_ns": 1,
    }
    return Window(rank=rank, world_size=2, first_step=step, **known | noted)


def test_all_ranks_of_a_window_become_one_run(recording):
    run = tracekit.open_run(recording)
    assert (run.ranks, run.manifest.world_size, run.manifest.missing_ranks) == ((0, 1), 2, ())
    assert run.manifest.epoch_ns == CREATED_NS
    assert run.manifest.layout == {"dp": 2}
    assert run.manifest.environment == {"NCCL_DEBUG": "INFO"}  # what differs is no ones
    assert run.capture(1).facts.environment["OMP_NUM_THREADS"] == "1"
    assert run.capture(1).versions["torch"] == "2.13.0"
    assert not (run.folder / "raw").exists()


def test_the_last_window_is_taken_and_others_are_named(recording):
    record(recording, 0, 1010)
    record(recording, 1, 10)
    assert [each.name for each in windows(recording)] == [
        "attempt=0/step=00000010",
        "attempt=0/step=00001010",
        "attempt=1/step=00000010",
    ]
    run = tracekit.open_run(recording)
    assert run.manifest.name == "attempt=1/step=00000010"
    assert len(run.manifest.other_runs) == 2
    result = tracekit.analyze(recording, run="attempt=0/step=00001010", engine="local:1")
    assert result.source.other_runs == ("attempt=0/step=00000010", "attempt=1/step=00000010")
    with pytest.raises(UsageError, match="no such window"):
        picked(recording, "attempt=7/step=00000010")


def test_a_rank_whose_trace_was_cut_is_read_as_far_as_it_goes(recording):
    raw = recording / "attempt=0/step=00000010/raw"
    (raw / "rank=000001.json").write_text(trace(rank=1)[:-500])
    (raw / "rank=000001.json").rename(raw / "rank=000001.json.tmp")
    (raw / "rank=000001.window.json").unlink()
    run = tracekit.open_run(recording)
    assert run.ranks == (0, 1)
    assert 0 < run.scan("cpu_ops", 1).collect().height < 50
    checks = {check.check for check in run.capture(1).quality}
    assert "window not closed" in checks


def test_a_rank_without_facts_is_read_all_the_same(recording):
    (recording / "attempt=0/ranks/rank=000001.json").write_text("")
    run = tracekit.open_run(recording)
    assert run.capture(1).facts is None
    assert run.capture(1).world_size == 2


def test_a_rank_that_cannot_be_read_costs_itself_alone(recording):
    raw = recording / "attempt=0/step=00000010/raw"
    (raw / "rank=000000.json").write_text("{}")
    run = tracekit.open_run(recording)
    assert (run.ranks, run.manifest.missing_ranks) == ((1,), (0,))
    assert "not converted" in run.manifest.others[0]
    assert (raw / "rank=000000.json").exists()


def test_a_window_of_which_nothing_can_be_read_is_an_error(recording):
    for path in recording.rglob("raw/rank=00000?.json"):
        path.write_text("{}")
    with pytest.raises(InputError, match=r"rank=000000\.json"):
        tracekit.open_run(recording)


def test_samples_and_what_recording_cost_are_kept(tmp_path):
    samples = (
        Sample(step=10, at_ns=CREATED_NS + 5, lengths=(7, 9), modality="text"),
        Sample(step=10, at_ns=CREATED_NS + 6, lengths=(3,)),
    )
    pair = ClockPair(realtime_ns=CREATED_NS, monotonic_ns=0, error_ns=100)
    jumped = ClockPair(realtime_ns=CREATED_NS + 3 * 10**9, monotonic_ns=10**9, error_ns=100)
    record(
        tmp_path / "job",
        0,
        10,
        samples=samples,
        before_ns=(100, 100, 100),
        during_ns=(150, 150),
        clocks=(pair, jumped),
        notes=("3 steps instead of 5: too large",),
        is_whole=False,
    )
    run = tracekit.open_run(tmp_path / "job")
    rows = (
        run.scan("samples", 0).select("start_ns", "step", "batch", "length", "modality").collect()
    )
    assert rows.rows() == [(5, 10, 0, 7, "text"), (5, 10, 0, 9, "text"), (6, 10, 1, 3, None)]
    details = {check.check: check.detail for check in run.capture(0).quality}
    assert "(+50%)" in details["cost of recording"]
    assert "+2,000.000 ms" in details["clock set while recording"]
    assert details["window shorter than asked for"].startswith("3 steps instead of 5")
    assert details["window cut"] == "the loop ended after 3 of its steps"


def test_numbers_that_no_table_holds_are_left_out(tmp_path):
    lengths = (7, -1, 10**30)
    samples = (
        Sample(step=10, at_ns=CREATED_NS, lengths=lengths),
        Sample(step=10, at_ns=-(2**63), lengths=(1,)),
    )
    record(tmp_path / "job", 0, 10, samples=samples)
    place = tmp_path / "job/attempt=0/telemetry"
    place.mkdir()
    line = {"kind": "sample", "source": "proc", "at_ns": CREATED_NS, "values": {"cpu_share": 0.5}}
    odd = [line | {"at_ns": -(2**63)}, line | {"dur_ns": 2**63}, line | {"at_ns": 10**30}]
    (place / "host=a.jsonl").write_text("\n".join(map(json.dumps, [line, *odd])) + "\n")
    run = tracekit.open_run(tmp_path / "job")
    assert run.scan("samples", 0).collect()["length"].to_list() == [7]
    assert run.scan("telemetry", 0).collect().height == 1


def test_the_hosts_own_telemetry_stands_once_where_each_rank_takes_itself_for_the_first(recording):
    place = recording / "attempt=0"
    for rank in (0, 1):  # as processes of mp.spawn do on a machine without devices
        path = place / f"ranks/rank={rank:06d}.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"local_rank": 0}))
    (place / "telemetry").mkdir()
    line = {"kind": "sample", "source": "proc", "at_ns": CREATED_NS, "values": {"cpu_share": 0.5}}
    (place / "telemetry/host=a.jsonl").write_text(json.dumps(line))
    run = tracekit.open_run(recording)
    assert [run.scan("telemetry", rank).collect().height for rank in run.ranks] == [1, 0]


@pytest.mark.parametrize("text", ["", '{"key": "k"}', '{"key": "k", "created_ns": -1}'])
def test_an_attempt_that_does_not_say_when_it_began_says_what_to_write(recording, text):
    (recording / "attempt=0/job.json").write_text(text)
    with pytest.raises(InputError, match=r"job\.json") as raised:
        tracekit.open_run(recording)
    assert "created_ns" in raised.value.hint


def test_files_of_other_names_are_no_ranks(recording):
    raw = recording / "attempt=0/step=00000010/raw"
    (raw / "rank=backup.json").write_text("{}")
    assert tracekit.open_run(recording).ranks == (0, 1)


def test_a_recording_that_was_moved_to_where_nothing_may_be_written_is_read(
    recording, tmp_path, monkeypatch
):
    tracekit.open_run(recording)
    moved = recording.rename(tmp_path / "moved")

    def read_only(*_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(recorded, "write_json", read_only)
    assert "moved/attempt=0" in tracekit.open_run(moved).manifest.source


def test_a_trace_that_may_not_be_converted_where_it_is_says_so(recording, monkeypatch):
    opened = Path.open

    def read_only(path, *arguments, **options):
        if path.suffix == ".lock":
            raise OSError(30, "Read-only file system")
        return opened(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", read_only)
    with pytest.raises(InputError, match="Read-only file system") as raised:
        finished(windows(recording)[0])
    assert "Copy the folder" in raised.value.hint


def test_a_file_system_without_locks_converts(recording, monkeypatch):
    def no_locks(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(recorded.fcntl, "flock", no_locks)
    assert tracekit.open_run(recording).ranks == (0, 1)


def test_clocks_and_telemetry_of_the_host_stand_with_the_rank(recording):
    place = recording / "attempt=0"
    (place / "clocks").mkdir()
    offset = {"at_ns": 1, "offset_ns": 5, "error_ns": 2, "min_delay_ns": 3, "n": 200}
    lines = [{"host": "a", "kind": "start", "reference": "b", "offset": offset}, {"offset": None}]
    text = "\n".join(map(json.dumps, lines)) + '\n{"cut'
    (place / "clocks/host=a.jsonl").write_text(text)
    (place / "telemetry").mkdir()
    sample = {"kind": "sample", "source": "proc", "at_ns": CREATED_NS, "dur_ns": 0}
    late = sample | {"at_ns": CREATED_NS + 3600 * 10**9}
    rows = [each | {"values": {"cpu_share": 0.5}} for each in (sample, late)]
    (place / "telemetry/host=a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    run = tracekit.open_run(recording)
    (reading,) = run.capture(0).clocks
    assert (reading.offset_ns, reading.error_ns, reading.reference) == (5, 2, "b")
    telemetry = run.scan("telemetry", 0).collect()
    assert telemetry.select("start_ns", "metric", "value").rows() == [(0, "cpu_share", 0.5)]
    assert run.scan("telemetry", 1).collect().is_empty()  # the host's stand with its first rank


def test_processes_that_convert_the_same_ranks_do_not_disturb_each_other(recording):
    window_folder = windows(recording)[0].folder
    command = [sys.executable, "-m", "tracekit.collectors.sources.recorded", str(window_folder)]
    ended = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    assert [process.communicate()[1] for process in ended] == [""] * 4
    assert [process.returncode for process in ended] == [0] * 4
    assert tracekit.open_run(recording).ranks == (0, 1)
    left = {path.name for path in window_folder.iterdir()}
    assert "raw" not in left
    assert not [path for path in window_folder.rglob("*") if path.suffix in {".tmp", ".spool"}]


def test_one_rank_is_converted_and_the_rest_is_said_to_wait(recording):
    run = finished(windows(recording)[0], rank=1)
    assert (run.ranks, run.manifest.missing_ranks) == ((1,), (0,))
    assert run.manifest.others == ("recorded, not converted yet: rank 0",)
    assert (run.folder / MANIFEST).exists()
    assert tracekit.convert(recording).ranks == (0, 1)


def test_a_trace_that_is_kept_waits_until_it_is_converted(recording):
    (window,) = windows(recording)
    assert window.waiting == (0, 1)
    finished(window, rank=1, keeps_raw=True)
    assert window.waiting == (0,)
    finished(window, keeps_raw=True)
    assert (window.waiting, len(window.raw)) == ((), 2)


def test_a_trace_that_was_kept_is_kept_when_another_version_converts_it(recording):
    (window,) = windows(recording)
    kept = window.raw
    finished(window, keeps_raw=True)
    for path in (window.folder / "captures").glob("*.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"code": "another version"}))
    assert window.waiting == (0, 1)
    finished(window)
    assert (window.waiting, window.raw) == ((), kept)


def test_a_folder_of_a_job_that_recorded_nothing_says_so(tmp_path):
    (tmp_path / "attempt=0/ranks").mkdir(parents=True)
    (tmp_path / "attempt=0/job.json").write_text("{}")
    assert is_recording(tmp_path)
    with pytest.raises(InputError, match="recorded nothing yet: 0 ranks began"):
        tracekit.analyze(tmp_path)


def test_only_a_recording_is_converted_in_place(tmp_path):
    with pytest.raises(UsageError, match=r"not recorded by tracekit\.collect"):
        tracekit.convert(tmp_path)


@pytest.mark.parametrize("keeps_raw", [True, False])
def test_a_trace_that_was_to_be_kept_is_kept_whoever_converts_it(tmp_path, keeps_raw):
    record(tmp_path / "job", 0, 10, keeps_raw=keeps_raw)
    tracekit.open_run(tmp_path / "job")  # the job was killed before its own conversion began
    assert bool(list((tmp_path / "job").glob("attempt=0/*/raw/rank=0*"))) == keeps_raw
