"""Profilers of the job beside ours: two that overlap would end the process."""

from __future__ import annotations

import logging
import threading

import pytest

import tracekit
from tracekit.collectors.live.turns import Busy, Turn

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.slow]
CPU = [torch.profiler.ProfilerActivity.CPU]


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)


def work():
    return (torch.ones(32, 32) @ torch.ones(32, 32)).sum()


def collected(run_dir, **options):
    few = {"steps": 3, "wait": 4, "rank": 0, "summary": False, "telemetry_every_s": None}
    return tracekit.collect(run_dir, **few | options)


def recorded(run_dir):
    return tracekit.open_run(run_dir).scan("steps", 0).collect()["step"].to_list()


def problems(caplog):
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


# Ours probes in step 2, warms up in step 3 and records the steps 4 to 6. Theirs warms up in step
# `wait`, which begins before ours looks.
@pytest.mark.parametrize(("wait", "ours"), [(2, []), (3, []), (4, []), (5, [4]), (6, [4, 5])])
def test_a_profiler_of_the_job_has_its_way(tmp_path, caplog, wait, ours):
    theirs = []
    schedule = torch.profiler.schedule(wait=wait, warmup=1, active=2, repeat=1)
    run_dir = tmp_path / "run"
    with (
        torch.profiler.profile(
            activities=CPU,
            schedule=schedule,
            on_trace_ready=lambda p: theirs.append(p.export_chrome_trace(str(tmp_path / "json"))),
        ) as profiler,
        collected(run_dir) as c,
    ):
        for _ in range(12):
            work()
            profiler.step()
            c.step()
    assert len(theirs) == 1
    assert len(problems(caplog)) == 1
    if ours:
        assert recorded(run_dir) == ours
    else:
        assert not list(run_dir.rglob("raw/*"))


def test_the_window_that_was_cut_says_so_and_the_next_is_whole(tmp_path, caplog):
    with collected(tmp_path, every=8) as c:
        for step in range(18):
            if step == 5:
                with torch.profiler.profile(activities=CPU):
                    work()
            work()
            c.step()
    assert "step 6 is not recorded: another profiler of torch began" in problems(caplog)[0]
    first = tracekit.open_run(tmp_path / "attempt=0/step=00000004")
    assert "window cut" in [check.check for check in first.capture(0).quality]
    assert recorded(tmp_path) == [12, 13, 14]


def test_a_profiler_of_another_thread_has_its_way(tmp_path, caplog):
    counts = []

    def theirs():
        with torch.profiler.profile(activities=CPU) as profiler:
            work()
        counts.append(len(profiler.events()))

    def ours():  # the session that is given up stays with its thread
        with collected(tmp_path) as c:
            for step in range(12):
                if step == 5:
                    thread = threading.Thread(target=theirs)
                    thread.start()
                    thread.join()
                work()
                c.step()

    thread = threading.Thread(target=ours)
    thread.start()
    thread.join()
    assert counts[0] > 0
    assert "another profiler of torch began" in problems(caplog)[0]


def test_steps_that_end_on_other_threads_are_not_recorded(tmp_path, caplog):
    def loop():
        with collected(tmp_path) as c:
            for _ in range(12):
                work()
                thread = threading.Thread(target=c.step)
                thread.start()
                thread.join()

    thread = threading.Thread(target=loop)
    thread.start()
    thread.join()
    assert any("on another thread" in each for each in problems(caplog))


def test_two_recordings_of_one_loop_do_not_meet(tmp_path, caplog):
    with collected(tmp_path / "a") as a, collected(tmp_path / "b") as b:
        for _ in range(12):
            work()
            a.step()
            b.step()
    assert recorded(tmp_path / "a") == [4, 5, 6]
    assert ["another profiler of torch is running" in each for each in problems(caplog)] == [True]


def test_torch_is_left_as_it_was():
    module = torch.autograd.profiler
    before = module._prepare_profiler, module._enable_profiler
    turn = Turn(lambda: None)
    with pytest.raises(Busy, match="another profiler"):
        Turn(lambda: None)
    turn.end()
    turn.end()
    assert (module._prepare_profiler, module._enable_profiler) == before
