"""The sampler as the process it is: beside a job, killed, told to end, left alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tracekit.collectors.telemetry import sampler
from tracekit.collectors.telemetry.__main__ import options
from tracekit.collectors.telemetry.metrics import UNITS
from tracekit.collectors.telemetry.parent import Parent


@pytest.fixture
def out(tmp_path):
    return tmp_path / "telemetry.jsonl"


def n_lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_a_kill_leaves_whole_lines(start, wait_for, out):
    process = start("--every-s", "0.1")
    wait_for(lambda: n_lines(out) > 20)
    process.kill()
    process.wait()
    *whole, last = out.read_bytes().split(b"\n")
    assert [json.loads(line)["kind"] for line in whole][:2] == ["header", "sample"]
    assert last == b""


def test_the_header_says_what_there_is_and_what_not(start, wait_for, out, parsed):
    start()
    wait_for(lambda: n_lines(out) > 1)
    header = parsed(out)[0]
    assert header["sources"] == ["nvml", "proc"]
    assert set(header["missing"]) == {"amdsmi", "infiniband"}
    assert [device["uuid"] for device in header["devices"]] == [
        "GPU-aaaaaaaa-0000",
        "GPU-bbbbbbbb-0000",
    ]
    assert header["lacks"]["GPU-bbbbbbbb-0000"]["energy_j"] == "Not Supported"
    assert header["units"] == UNITS
    assert (header["every_ns"], header["parent_pid"]) == (10**9, os.getpid())


def test_a_device_that_is_not_there_is_named(start, wait_for, out, parsed):
    start("--device", "bbbbbbbb-0000", "--device", "GPU-c")
    wait_for(lambda: n_lines(out) > 1)
    header = parsed(out)[0]
    assert [device["uuid"] for device in header["devices"]] == ["GPU-bbbbbbbb-0000"]
    assert header["missing"]["GPU-c"] == "no such device on this host"


def test_without_a_driver_the_host_is_sampled_alone(start, wait_for, out, parsed):
    start(with_nvml=False)
    wait_for(lambda: n_lines(out) > 1)
    header, first, *_ = parsed(out)
    assert header["missing"]["nvml"] == "NVML Shared Library Not Found"
    assert first["source"] == "proc"


def test_it_ends_when_told_to_and_says_so(start, wait_for, out, parsed):
    process = start("--every-s", "60")
    wait_for(lambda: n_lines(out) > 1)
    process.terminate()
    assert process.wait(60) == 0
    last = parsed(out)[-1]
    assert (last["kind"], last["reason"], last["n_ticks"]) == ("end", "a signal", 1)
    assert process.stderr.read() == b""


def test_it_ends_with_its_parent(start, wait_for, out, parsed):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as parent:
        process = start("--every-s", "0.1", "--parent", parent.pid)
        wait_for(lambda: n_lines(out) > 1)
        assert process.poll() is None
        parent.kill()
        # Not waited for yet, so it is a zombie: gone all the same.
        assert process.wait(60) == 0
    assert parsed(out)[-1]["reason"] == "the parent is gone"


def test_a_parent_that_never_was_ends_it_at_once(start, out, parsed):
    with subprocess.Popen(["true"]) as gone:
        pass
    assert start("--parent", gone.pid).wait(10) == 0
    assert [line["kind"] for line in parsed(out)] == ["header", "end"]


def test_it_ends_when_its_folder_is_gone(start, wait_for, tmp_path):
    out = tmp_path / "run" / "telemetry.jsonl"
    out.parent.mkdir()
    process = start("--every-s", "0.1", out=out)
    wait_for(lambda: n_lines(out) > 1)
    out.unlink()
    out.parent.rmdir()
    assert process.wait(60) == 0


def test_a_full_disk_ends_it(start):
    assert start(out=Path("/dev/full")).wait(10) == 0


def test_it_is_the_last_to_get_the_cpu_and_the_disk(start, wait_for, out):
    process = start()
    wait_for(lambda: n_lines(out) > 1)
    seen = psutil.Process(process.pid)
    assert seen.nice() == 19
    assert seen.ionice().ioclass == psutil.IOPRIO_CLASS_IDLE


def sampled(out, monkeypatch, **changes):
    """Run in this process, at normal priority, the host alone."""
    monkeypatch.setattr(sampler, "be_humble", lambda: None)
    monkeypatch.setattr(sampler.nvml, "opened", no_nvml)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    chosen = {"every_ns": 10**6, "parent_pid": os.getppid(), "most_bytes": 10**6} | changes
    try:
        sampler.run(sampler.Options(out=out, **chosen))
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return [json.loads(line) for line in out.read_bytes().splitlines()]


def no_nvml(*_):
    raise RuntimeError("driver and library are of different versions")


def test_a_full_file_ends_it_and_says_so(out, monkeypatch):
    header, *_, last = sampled(out, monkeypatch, most_bytes=20_000)
    assert last["reason"] == "the file has its 20000 bytes"
    assert out.stat().st_size <= 20_000
    assert header["missing"]["nvml"].startswith("RuntimeError: driver and library")


def test_the_latest_is_kept_in_two_files(out, monkeypatch):
    begin_again, n_times = sampler.Output.begin_again, []

    def counted(output):
        if len(n_times) == 2:
            raise OSError("enough")
        n_times.append(1)
        begin_again(output)

    monkeypatch.setattr(sampler.Output, "begin_again", counted)
    header, *_, last = sampled(out, monkeypatch, most_bytes=20_000, keeps_latest=True)
    assert (header["kind"], last["reason"]) == ("header", "enough")
    old = [json.loads(line) for line in out.with_suffix(".old.jsonl").read_bytes().splitlines()]
    assert old[0] == header
    assert old[-1]["kind"] == "sample"
    assert sorted(path.name for path in out.parent.iterdir()) == [
        "telemetry.jsonl",
        "telemetry.old.jsonl",
    ]


def test_a_source_that_breaks_leaves_the_others(out, monkeypatch):
    class Broken:
        def read(self):
            raise RuntimeError

    opened = sampler.opened_sources

    def with_broken(options):
        sources, missing = opened(options)
        return (*sources, Broken()), missing

    monkeypatch.setattr(sampler, "opened_sources", with_broken)
    monkeypatch.setattr(sampler, "header", lambda *_: {"kind": "header"})
    *_, sample, last = sampled(out, monkeypatch, most_bytes=10_000)
    assert sample["source"] == "proc"
    # The tick that found the file full was read, and not written.
    assert last["n_failed"] == last["n_ticks"] + 1


def test_ticks_that_are_late_are_missed_and_counted(out, monkeypatch):
    clock_ns = iter(range(0, 10**12, 35 * 10**5))  # each look is 3.5 ms later
    monkeypatch.setattr(sampler.time, "monotonic_ns", lambda: next(clock_ns))
    *_, last = sampled(out, monkeypatch, most_bytes=10_000)
    # Two looks a tick of 1 ms: one each 7 ms, so that six between are missed.
    assert last["n_ticks"] > 2
    assert 5 * last["n_ticks"] <= last["n_missed"] <= 7 * last["n_ticks"]


def test_a_file_that_cannot_be_opened_is_an_error(tmp_path, monkeypatch):
    with pytest.raises(OSError, match="No such file"):
        sampled(tmp_path / "none" / "out.jsonl", monkeypatch)


def test_a_process_of_the_same_number_is_another(tmp_path):
    stat = tmp_path / "7/stat"
    stat.parent.mkdir()
    (tmp_path / "stat").write_text("")
    stat.write_text("7 (a) b) S " + "0 " * 18 + "100 0")
    process = Parent(7, tmp_path)
    assert not process.is_gone()
    stat.write_text("7 (a) b) S " + "0 " * 18 + "200 0")
    assert process.is_gone()


def test_without_proc_a_process_is_asked_for_by_signal(tmp_path):
    assert not Parent(os.getpid(), tmp_path).is_gone()
    with subprocess.Popen(["true"]) as gone:
        pass
    assert Parent(gone.pid, tmp_path).is_gone()


def test_the_command_line():
    chosen = options(["out.jsonl", "--every-s", "0.1", "--parent", "7", "--device", "GPU-a"])
    assert (chosen.every_ns, chosen.parent_pid, chosen.devices) == (10**8, 7, ("GPU-a",))
    assert options(["out.jsonl"]).most_bytes == 256 * 10**6
    assert options(["out.jsonl"]).parent_pid == os.getppid()


@pytest.mark.parametrize("period", ["0", "-1", "nan", "often"])
def test_a_period_that_is_none_is_refused(period, capsys):
    with pytest.raises(SystemExit):
        options(["out.jsonl", "--every-s", period])
    assert "--every-s" in capsys.readouterr().err


def test_it_loads_nothing_heavy():
    code = (
        "import sys, tracekit.collectors.telemetry.__main__\n"
        "print({'polars', 'pyarrow', 'msgspec', 'torch'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_first_process_of_the_job_may_be_another_than_the_one_whose_end_is_the_end():
    chosen = options(["out.jsonl", "--parent", "7", "--job", "5"])
    assert (chosen.parent_pid, chosen.job_pid) == (7, 5)


def test_a_second_sampler_of_a_file_leaves_it_to_the_first(start, wait_for, out, parsed):
    start("--every-s", "0.1")
    wait_for(lambda: n_lines(out) > 1)
    assert start("--every-s", "0.1").wait(10) == 0
    assert [line["kind"] for line in parsed(out)].count("header") == 1
