"""The hook in this process: one rank, and whatever can go wrong beside the loop."""

from __future__ import annotations

import gc
import json
import logging
import time

import pytest

import tracekit
from tracekit.collectors.live import converter, recording
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


@pytest.mark.parametrize("at", ["step", "close"])
def test_a_profiler_that_breaks_costs_the_recording_alone(tmp_path, caplog, monkeypatch, at):
    def broken(_):
        raise RuntimeError("CUPTI is busy")

    monkeypatch.setattr(recording.StepProfiler, at, broken)
    trained(tmp_path)
    assert any("CUPTI is busy" in each for each in problems(caplog))


def test_a_conversion_that_cannot_start_leaves_the_trace(tmp_path, caplog, monkeypatch):
    def broken(*_, **__):
        raise OSError("no more processes")

    monkeypatch.setattr(converter.subprocess, "Popen", broken)
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


@pytest.mark.parametrize("options", [{"steps": 0}, {"wait": 0}, {"steps": 5, "every": 5}])
def test_a_plan_that_makes_no_sense_is_refused_before_the_loop(tmp_path, options):
    with pytest.raises(UsageError, match="steps="):
        tracekit.collect(tmp_path, **options)


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
