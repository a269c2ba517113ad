"""The hook in this process: one rank, and whatever can go wrong beside the loop."""

from __future__ import annotations

import gc
import itertools
import json
import logging
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

import tracekit
from tracekit.collectors.live import converter, processes, recording, samples
from tracekit.collectors.live.flight_recorder import Watchdog
from tracekit.collectors.live.limits import Limits
from tracekit.errors import UsageError

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.slow]
QUIETLY = {"telemetry_every_s": None, "summary": False}


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    """No launcher is seen, and a conversion is none of these tests' business."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)


def work():
    return (torch.ones(32, 32) @ torch.ones(32, 32)).sum()


def trained(run_dir, n_steps=12, **options):
    with tracekit.collect(run_dir, **{"steps": 3, "wait": 4} | QUIETLY | options) as c:
        for _ in range(n_steps):
            work()
            c.step()


def problems(caplog):
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def test_one_rank_without_process_groups_is_a_run(tmp_path, caplog):
    trained(tmp_path)
    run = tracekit.open_run(tmp_path)
    assert (run.ranks, run.manifest.world_size) == ((0,), 1)
    assert run.scan("steps", 0).collect()["step"].to_list() == [4, 5, 6]
    assert problems(caplog) == []


def test_a_window_is_never_earlier_than_it_can_warm_up(tmp_path):
    trained(tmp_path, wait=1, n_steps=6)  # that it is rank 0 shows at the end of step 0
    assert tracekit.open_run(tmp_path).scan("steps", 0).collect()["step"].to_list() == [2, 3, 4]


def test_a_rank_that_is_given_begins_at_once(tmp_path):
    trained(tmp_path, wait=1, n_steps=6, rank=0, world_size=1)
    assert tracekit.open_run(tmp_path).scan("steps", 0).collect()["step"].to_list() == [1, 2, 3]


def test_a_loop_that_raises_keeps_what_was_recorded_and_its_exception(tmp_path):
    def loop():
        with tracekit.collect(tmp_path, steps=5, wait=4, **QUIETLY) as c:
            for step in range(12):
                work()
                _ = 1 / (6 - step)
                c.step()

    with pytest.raises(ZeroDivisionError):
        loop()
    run = tracekit.open_run(tmp_path)
    assert run.scan("steps", 0).collect()["step"].to_list() == [4, 5, 6]  # the last is cut
    assert "window cut" in [check.check for check in run.capture(0).quality]


@pytest.mark.parametrize("n_steps", [1, 2, 3, 4])
def test_a_loop_that_ends_before_its_window_says_so(tmp_path, caplog, n_steps):
    trained(tmp_path, n_steps=n_steps)
    assert not list(tmp_path.rglob("*.parquet"))
    assert f"the loop ended after {n_steps} steps" in problems(caplog)[0]


def test_switched_off_it_does_nothing(tmp_path):
    trained(tmp_path, enabled=False)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_costs_the_recording_alone(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    trained(tmp_path / "file" / "run")
    assert len(problems(caplog)) == 1
    assert "recording could not begin: NotADirectoryError" in problems(caplog)[0]


@pytest.mark.parametrize("at", ["step", "_save"])
def test_a_profiler_that_breaks_costs_the_recording_alone(tmp_path, caplog, monkeypatch, at):
    def broken(*_):
        raise RuntimeError("CUPTI is busy")

    monkeypatch.setattr(recording.StepProfiler, at, broken)
    trained(tmp_path)
    assert ["CUPTI is busy" in each for each in problems(caplog)] == [True]


def test_a_conversion_that_cannot_start_leaves_the_trace(tmp_path, caplog, monkeypatch):
    def broken(*_, **__):
        raise OSError("no more processes")

    monkeypatch.setattr(processes.subprocess, "Popen", broken)
    trained(tmp_path)
    monkeypatch.undo()
    assert any("no more processes" in each for each in problems(caplog))
    assert tracekit.convert(tmp_path).ranks == (0,)


def test_another_profiler_of_the_loop_is_left_in_peace(tmp_path, caplog):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        trained(tmp_path)
    assert any("another profiler" in each for each in problems(caplog))


def test_a_full_disk_is_not_filled(tmp_path, caplog):
    trained(tmp_path, limits=Limits(min_free_bytes=1 << 60))
    assert any("min_free_bytes" in each for each in problems(caplog))
    assert not list(tmp_path.rglob("*.parquet"))


def test_the_probe_shortens_a_window_that_would_be_too_large(tmp_path, caplog):
    trained(tmp_path, steps=3, limits=Limits(max_window_bytes=1))
    assert any("0 steps instead of 3" in each for each in problems(caplog))
    assert not list(tmp_path.rglob(".probe*"))


def test_stacks_are_recorded_for_three_steps_at_most(tmp_path, caplog):
    trained(tmp_path, steps=5, with_stack=True)
    run = tracekit.open_run(tmp_path)
    assert run.scan("steps", 0).collect().height == 3
    assert any("with_stack" in each for each in problems(caplog))


def test_raw_traces_are_kept_on_request_and_not_converted_again(tmp_path):
    trained(tmp_path, keep_raw=True)
    first = tracekit.open_run(tmp_path)
    capture = first.folder / "captures/rank=000000.json"
    written_ns = capture.stat().st_mtime_ns
    tracekit.open_run(tmp_path)
    assert capture.stat().st_mtime_ns == written_ns
    assert list(first.folder.glob("raw/rank=000000.json"))


@pytest.mark.parametrize(
    "options",
    [
        {"steps": 0},
        {"steps": 2.5},
        {"wait": None},
        {"every": 5},
        {"rank": -1},
        {"rank": "0"},
        {"world_size": 0},
        {"attempt": -1},
        {"layout": [2]},
        {"layout": {"tp": 0}},
        {"telemetry_every_s": 0},
        {"telemetry_every_s": float("nan")},
        {"limits": 5},
        {"run_dir": None},
    ],
    ids=str,
)
def test_an_argument_that_makes_no_sense_is_refused_before_the_loop(tmp_path, options):
    (name,) = options
    with pytest.raises(UsageError, match=name):
        tracekit.collect(**{"run_dir": tmp_path} | options)


def test_numbers_of_other_libraries_are_numbers(tmp_path):
    numpy = pytest.importorskip("numpy")
    layout = {"dp": numpy.int64(2)}
    trained(tmp_path, rank=numpy.int64(1), world_size=torch.tensor(2), layout=layout)
    facts = tracekit.open_run(tmp_path).capture(1).facts
    assert (facts.world_size, facts.layout.place) == (2, {"dp": 1})


def test_a_job_that_changes_its_folder_writes_where_it_began(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    collection = tracekit.collect("run", steps=3, wait=4, **QUIETLY)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    with collection as c:
        for _ in range(12):
            work()
            c.step()
    assert tracekit.open_run(tmp_path / "run").ranks == (0,)


def test_what_is_no_length_is_said_once_and_costs_itself_alone(tmp_path, caplog):
    with tracekit.collect(tmp_path, steps=2, wait=3, **QUIETLY) as c:
        for _ in range(8):
            work()
            for wrong in (None, [None], [float("nan")], [-1], [10**30]):
                c.samples(wrong)
            c.samples(iter([7]), modality="\ud800" + "x" * 1000)
            c.step()
    assert ["are not kept" in each for each in problems(caplog)] == [True]
    rows = tracekit.open_run(tmp_path).scan("samples", 0).collect()
    assert rows.select("step", "length").rows() == [(3, 7), (4, 7)]
    assert rows["modality"][0] == "?" + "x" * 199


def test_lengths_without_end_do_not_hold_the_loop(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(samples, "MAX_LENGTHS", 100)
    with tracekit.collect(tmp_path, steps=2, wait=3, **QUIETLY) as c:
        for _ in range(8):
            work()
            c.samples(itertools.count())
            c.step()
    assert "a window keeps 100" in problems(caplog)[0]
    assert tracekit.open_run(tmp_path).scan("samples", 0).collect().height == 100


def test_phases_may_be_called_anything(tmp_path, caplog):
    class Nameless:
        def __str__(self):
            raise RuntimeError("no name")

    with tracekit.collect(tmp_path, steps=2, wait=3, **QUIETLY) as c:
        for _ in range(8):
            for name in ("x" * 1000, "\ud800", "a\0b", None, 5, Nameless()):
                with c.phase(name):
                    work()
            c.step()
    assert len(problems(caplog)) == 1
    marks = tracekit.open_run(tmp_path).scan("annotations", 0).collect()["name"].to_list()
    phases = {mark.removeprefix("tracekit.phase ") for mark in marks if "phase" in mark}
    assert {"x" * 200, "None", "5", "?"} < phases


def test_a_loop_without_a_step_is_told(tmp_path, caplog):
    with tracekit.collect(tmp_path, **QUIETLY):
        work()
    assert problems(caplog) == ["tracekit: nothing was recorded: step() was never called"]


def test_a_start_that_fails_leaves_nothing_running(tmp_path, caplog, monkeypatch):
    def full(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr(recording.facts, "write", full)
    threads = threading.active_count()
    with tracekit.collect(tmp_path, rank=0, telemetry_every_s=None) as c:
        assert c._steps is None
        assert c._watchdog is None
        for _ in range(12):
            work()
            c.step()
    assert threading.active_count() == threads
    assert ["the disk is full" in each for each in problems(caplog)] == [True]


def test_a_conversion_that_fails_says_where_it_says_why(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(converter, "MODULE", "tracekit.no_such_module")
    trained(tmp_path)
    (problem,) = problems(caplog)
    said = Path(problem.partition("reason in ")[2].partition(": tracekit")[0])
    assert "no_such_module" in said.read_text()
    assert tracekit.convert(tmp_path).ranks == (0,)


def test_processes_beside_the_job_do_not_import_what_is_the_jobs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("select", "fcntl", "platform"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError")
    said = tmp_path / "said"
    with said.open("wb") as file:
        module = "tracekit.collectors.telemetry"
        assert processes.started(module, "--help", said=file).wait(60) == 0
    assert b"--every-s" in said.read_bytes()


def test_groups_that_are_taken_down_before_the_end_are_kept(tmp_path):
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0,
                                         world_size=1)  # fmt: skip
    with tracekit.collect(tmp_path, steps=3, wait=4, **QUIETLY) as c:
        for step in range(12):
            work()
            if step == 5:
                torch.distributed.destroy_process_group()
            c.step()
    (group,) = tracekit.open_run(tmp_path).capture(0).facts.groups
    assert (group.backend, group.ranks) == ("gloo", (0,))


def test_a_probe_that_fails_leaves_no_file(tmp_path, caplog, monkeypatch):
    def broken(_):
        raise RuntimeError("no number")

    monkeypatch.setattr(recording, "probed", broken)
    trained(tmp_path)
    assert any("no number" in each for each in problems(caplog))
    assert not list(tmp_path.rglob(".probe*"))


def test_a_rank_that_was_converted_before_takes_nothing_from_this_one(tmp_path, caplog):
    with tracekit.collect(tmp_path, steps=3, wait=4, **QUIETLY) as c:
        for step in range(12):
            work()
            if step == 5:
                (raw,) = tmp_path.glob("attempt=0/step=*/raw")
                raw.rmdir()  # as the converter of another rank does after its last one
            c.step()
    assert tracekit.open_run(tmp_path).scan("steps", 0).collect()["step"].to_list() == [4, 5, 6]
    assert problems(caplog) == []


def test_a_step_that_was_interrupted_ends_the_recording_alone(tmp_path, caplog, monkeypatch):
    recorded = recording.Recording.on_step

    def interrupted(self, dur_ns):
        if self.step == 2:
            self.step += 1
            raise KeyboardInterrupt
        return recorded(self, dur_ns)

    monkeypatch.setattr(recording.Recording, "on_step", interrupted)
    with tracekit.collect(tmp_path, rank=0, telemetry_every_s=None) as c:
        for _ in range(20):
            work()
            with suppress(KeyboardInterrupt):
                c.step()
        assert c._steps is None
    assert problems(caplog) == ["tracekit: recording is given up: step() was interrupted"]


def test_a_fork_of_the_job_leaves_the_recording_to_it(tmp_path):
    options = {"steps": 3, "wait": 4, "telemetry_every_s": None}
    with tracekit.collect(tmp_path, rank=0, **options) as c:
        for step in range(12):
            work()
            if step == 5:
                child = os.fork()
                if child == 0:
                    c.step()
                    c.__exit__(None, None, None)
                    os._exit(0)
                assert os.waitpid(child, 0)[1] == 0
            c.step()
    assert tracekit.open_run(tmp_path).scan("steps", 0).collect()["step"].to_list() == [4, 5, 6]


def test_collections_of_garbage_are_marked(tmp_path):
    with tracekit.collect(tmp_path, steps=3, wait=4, **QUIETLY) as c:
        for _ in range(9):
            work()
            gc.collect()
            c.step()
    marks = tracekit.open_run(tmp_path).scan("annotations", 0).collect()["name"].to_list()
    assert marks.count("tracekit.gc generation 2") == 3


def test_a_handler_of_torchs_profiler_makes_runs(tmp_path):
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=2)
    handler = tracekit.trace_handler(tmp_path)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=schedule,
        on_trace_ready=handler,
        acc_events=True,
    ) as profiler:
        for _ in range(9):
            work()
            profiler.step()
    converter.finish(60)
    assert tracekit.open_run(tmp_path).ranks == (0,)
    names = sorted(each.name for each in (tmp_path / "attempt=0").glob("step=*"))
    assert names == ["step=00000004", "step=00000008"]


def test_a_handler_never_raises(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    tracekit.trace_handler(tmp_path / "file")(object())
    assert any("a trace is lost" in each for each in problems(caplog))


def test_a_loop_that_hangs_says_where_once(tmp_path, caplog):
    watchdog = Watchdog(tmp_path, 3, min_hang_s=0.2)
    until_s = time.monotonic() + 20
    stacks = tmp_path / "flight_recorder/rank=000003.stacks.txt"
    while not stacks.exists() and time.monotonic() < until_s:
        time.sleep(0.05)
    time.sleep(0.3)
    watchdog.close()
    assert "test_a_loop_that_hangs_says_where_once" in stacks.read_text()
    assert len([each for each in problems(caplog) if "no step has ended" in each]) == 1


def test_phases_are_parts_of_the_summary(tmp_path):
    with tracekit.collect(tmp_path, wait=4, telemetry_every_s=None, rank=0, world_size=1) as c:
        for _ in range(3):
            with c.phase("rollout"):
                time.sleep(0.01)
            c.step()
    lines = (tmp_path / "attempt=0/steps/rank=000000.jsonl").read_text().splitlines()
    parts = [json.loads(line)["parts"]["phase rollout"] for line in lines]
    assert [n for n, *_ in parts] == [1, 1, 1]
    assert min(total_ns for _, total_ns, *_ in parts) >= 10_000_000
