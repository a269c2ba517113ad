"""`tracekit watch`: what it reads of a running job, what it shows, and how it ends."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from tracekit.cli import main
from tracekit.cli._following import N_STEPS, TAIL_BYTES, Following, _Tail
from tracekit.cli.watch import view

JOB = Path(__file__).parents[1] / "collectors/live/jobs.py"
MS = 10**6


def line(
    step, *, dur_ms=100, ago_s=0.0, parts=(("forward", 60), ("optimizer", 10)), waits=3, device=None
):
    """One line of a rank: a step that ended so long ago; of the device its ms, and its parts'."""
    on_device = {}
    if device is not None:
        device_ms, device_parts = device
        spans = {name: [1, part_ms * MS, 0, 0] for name, part_ms in device_parts}
        on_device = {"device": {"step": step - 1, "dur_ns": device_ms * MS, "parts": spans}}
    return json.dumps(
        {
            "step": step,
            "ended_ns": time.time_ns() - int(ago_s * 1e9),
            "dur_ns": dur_ms * MS,
            "parts": {name: [1, part_ms * MS, 0, 0] for name, part_ms in parts},
            "host": {"cpu_ns": 0, "n_waits": waits, "n_preempted": 1, "n_major_faults": 0},
        }
        | on_device
    )


@pytest.fixture
def write(tmp_path):
    """Write a rank of an attempt: its steps, null where it keeps no summary, and that it began."""

    def rank(number, lines, *, attempt=0, world_size=None, end="\n"):
        folder = tmp_path / f"attempt={attempt}"
        for name in ("steps", "ranks"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        facts = {"world_size": world_size} if world_size else {}
        claim = folder / f"ranks/rank={number:06d}.json"
        claim.write_text(json.dumps(facts) if facts else "", "utf-8")
        path = folder / f"steps/rank={number:06d}.jsonl"
        if lines is not None:
            path.write_text("\n".join(lines) + end if lines else "", "utf-8")
        return path

    return rank


@pytest.fixture
def following(tmp_path):
    return Following(tmp_path / "attempt=0")


def watch(*arguments):
    result = CliRunner().invoke(main, ["watch", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result


def rows(result):
    """Cells of the table by rank, in the order shown."""
    lines = result.stdout.splitlines()
    start = next(i for i, text in enumerate(lines) if text.lstrip().startswith("Rank "))
    cells = [re.split(r"  +", text.strip()) for text in lines[start + 1 :] if text[:6].strip()]
    return {int(each[0]): each[1:] for each in cells if each[0].isdecimal()}


def test_a_table_has_one_row_a_rank(write, tmp_path):
    write(0, [line(step) for step in range(30)], world_size=2)
    write(1, [line(step, dur_ms=100 + step % 2 * 20) for step in range(30)])
    done = watch(tmp_path)
    assert done.exit_code == 0
    assert "Attempt 0: 2 of 2 ranks, steps 29 to 29, mean step 105.0 ms" in done.stdout
    assert "slowest: rank 1 with 110.0 ms" in done.stdout
    assert "No rank is behind the others" in done.stdout
    shown = rows(done)
    # 60 of 100 ms, and of 110
    assert shown[0][:3] == ["29", "-", "100.0 ms"]
    assert shown[0][4:] == ["forward", "60%", "3.0", "1.0"]
    assert shown[1][2] == "110.0 ms"
    assert shown[1][4:6] == ["forward", "55%"]


def test_the_step_of_the_device_and_its_largest_part_are_shown_where_timed(write, tmp_path):
    backward = (("forward", 30), ("backward", 81))
    device = [(110, ()), (90, backward), (90, ()), (90, ())]
    write(0, [line(step, device=each) for step, each in enumerate(device)])
    write(1, [line(step, dur_ms=90) for step in range(4)])
    done = watch(tmp_path)
    # (110 + 3 * 90) / 4; 81 of the 90 ms of the one step whose parts were timed
    shown = rows(done)
    assert shown[0][2:4] == ["100.0 ms", "95.0 ms"]
    assert shown[0][5:7] == ["device: backward", "90%"]
    assert shown[1][2:4] == ["90.0 ms", "-"]
    assert shown[1][5] == "forward"


def test_without_a_timed_device_there_is_no_column_of_it(write, tmp_path):
    write(0, [line(0)])
    assert "On device" not in watch(tmp_path).stdout


def test_a_narrow_terminal_cuts_the_part_alone(write, following):
    parts = (("model.layers.0.attention", 70),)
    write(0, [line(123_456, dur_ms=123, parts=parts, device=(99, parts))])
    console = Console(width=80, file=io.StringIO())
    console.print(view(following.read(), 1))
    *_, row = console.file.getvalue().splitlines()
    cells = row.split()
    assert cells[:6] == ["0", "123,456", "-", "123.0", "ms", "99.0"]
    assert cells[-3:] == ["71%", "3.0", "1.0"]
    assert "…" in row


def test_means_are_those_of_the_last_20_steps(write, following):
    write(0, [line(step, dur_ms=500 if step < 10 else 100) for step in range(10 + N_STEPS)])
    (rank,) = following.read().ranks
    assert rank.mean_ns == 100 * MS


def test_the_rank_that_is_silent_for_longest_is_first(write, tmp_path):
    write(0, [line(9, ago_s=1)])
    write(1, [line(8, ago_s=60)])
    write(2, [line(9, ago_s=1, dur_ms=5000)])
    assert list(rows(watch(tmp_path))) == [1, 2, 0]


def test_a_rank_behind_is_named_with_its_steps(write, tmp_path):
    for rank in range(4):
        write(rank, [line(100 if rank != 2 else 88)])
    done = watch(tmp_path)
    assert "Behind the others, which are at step 100, in steps: rank 2 by 12" in done.stdout
    assert rows(done)[2][1] == "12"


def test_of_two_ranks_the_later_one_is_behind(write, following):
    write(0, [line(10)])
    write(1, [line(3)])
    assert following.read().behind() == {1: 7}


def test_one_step_is_no_lag(write, following):
    for rank, step in enumerate((10, 9, 10)):
        write(rank, [line(step)])
    assert following.read().behind() == {}


def test_a_line_that_is_half_written_waits(write, following):
    second = line(1)
    path = write(0, [line(0), second[:40]], end="")
    assert following.read().ranks[0].step == 0
    with path.open("a", encoding="utf-8") as file:
        file.write(second[40:] + "\n")
    assert following.read().ranks[0].step == 1


def test_only_the_end_of_a_file_is_read_and_then_what_is_new(write, following, monkeypatch):
    path = write(0, [line(step, parts=(("x" * 100, 1),)) for step in range(2000)])
    assert path.stat().st_size > 4 * TAIL_BYTES
    read = []
    take = _Tail._take

    def counted(tail, text):
        read.append(len(text))
        return take(tail, text)

    monkeypatch.setattr(_Tail, "_take", counted)
    assert following.read().ranks[0].step == 1999
    following.read()
    more = line(2000) + "\n"
    with path.open("a", encoding="utf-8") as file:
        file.write(more)
    assert following.read().ranks[0].step == 2000
    assert read == [TAIL_BYTES, 0, len(more)]


def test_a_file_that_was_replaced_goes_on_with_the_old_steps(write, following):
    path = write(0, [line(step, dur_ms=300) for step in range(30)])
    following.read()
    path.replace(path.with_suffix(".old.jsonl"))
    assert following.read().ranks[0].step == 29  # for a moment there is none
    write(0, [line(step) for step in range(30, 40)])
    (rank,) = following.read().ranks
    assert (rank.step, rank.mean_ns) == (39, 200 * MS)
    # and so for who begins to watch now
    (rank,) = Following(following.folder).read().ranks
    assert (rank.step, rank.mean_ns) == (39, 200 * MS)


def test_a_rank_without_a_line_is_shown(write, tmp_path):
    write(0, [line(5)], world_size=4)
    write(1, [])
    done = watch(tmp_path)
    assert "2 of 4 ranks" in done.stdout
    assert "Ranks on which no step has ended: 1" in done.stdout
    assert rows(done)[1][4] == "no step has ended"


def test_ranks_that_keep_no_summary_are_not_said_to_be_in_their_first_step(write, tmp_path):
    write(0, [line(5)])
    write(1, None)
    write(2, [])
    done = watch(tmp_path)
    assert "Ranks on which no step has ended: 1" in done.stdout
    without = "Ranks that keep no summary of steps, as under trace_handler or with summary=False: 1"
    assert without in done.stdout
    assert rows(done)[1][4] == "-"


def test_damaged_lines_are_passed_over(write, following):
    write(0, [line(0), "\x00\x00", "[1]", "{}"])
    assert following.read().ranks[0].step == 0


def test_a_thousand_ranks_are_a_short_table(write, tmp_path):
    for rank in range(1000):
        write(rank, [line(9, ago_s=50 if rank == 777 else 0)], world_size=1000)
    began_s = time.monotonic()
    done = watch(tmp_path, "--show", 5)
    assert time.monotonic() - began_s < 5
    assert len(done.stdout.splitlines()) <= 10
    assert next(iter(rows(done))) == 777
    assert "Ranks that hold up less: 995 (--show 1000)" in done.stdout


def test_the_newest_attempt_is_shown_unless_another_is_asked_for(write, tmp_path):
    for attempt in (0, 9, 10):
        write(0, [line(attempt)], attempt=attempt)
    assert "Attempt 10: 1 ranks, steps 10 to 10" in watch(tmp_path).stdout
    assert "Attempt 9: 1 ranks, steps 9 to 9" in watch(tmp_path, "--attempt", 9).stdout
    none = watch(tmp_path, "--attempt", 5)
    assert none.exit_code == 3
    assert "there is no attempt 5\nHint: There are: 0, 9, 10" in none.stderr


@pytest.mark.parametrize("folder", ["", "nothing"])
def test_a_folder_without_a_recording_is_an_error_with_a_hint(tmp_path, folder):
    done = watch(tmp_path / folder)
    assert done.exit_code == 3
    assert "no job has recorded itself here" in done.stderr
    assert "Hint: Give the folder" in done.stderr


def test_the_folders_of_jobs_above_and_below_are_named(write, tmp_path):
    write(0, [line(5)])
    inside = watch(tmp_path / "attempt=0")
    assert f"Hint: Give the folder above it: {tmp_path}" in inside.stderr
    (tmp_path / "attempt=0").rename(tmp_path / "moved")
    job = tmp_path / "runs/my-job/attempt=0"
    job.parent.mkdir(parents=True)
    (tmp_path / "moved").rename(job)
    above = watch(tmp_path / "runs")
    assert f"Hint: Jobs below: {job.parent}" in above.stderr


def test_names_are_printed_as_they_are(write, tmp_path):
    write(0, [line(0, parts=(("[red]x[/red]", 60),))])
    assert "[red]x[/red]" in watch(tmp_path).stdout


@pytest.mark.slow
@pytest.mark.torch
def test_a_running_job_is_followed_until_ctrl_c(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    options = json.dumps({"wait": 10**9})
    arguments = [tmp_path, "--options", options, "--n-steps", "100000", "--late", "0.02"]
    with subprocess.Popen(
        [*command, str(JOB), *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as job:
        try:
            until_s = time.monotonic() + 120
            while not stepped(tmp_path) and time.monotonic() < until_s:
                time.sleep(0.1)
            done = watch(tmp_path, "--once")
            assert "2 of 2 ranks" in done.stdout
            assert "No rank is behind the others" in done.stdout
            assert set(rows(done)) == {0, 1}
            code, said = on_a_terminal(["watch", str(tmp_path), "--every-s", "0.2"], seconds=3)
        finally:
            job.send_signal(signal.SIGTERM)
    assert code == 0
    assert "Traceback" not in said
    steps = [int(each) for each in re.findall(r"steps [\d,]+ to (\d+)", said)]
    assert len(set(steps)) > 3  # it was drawn again and again
    assert steps == sorted(steps)


def stepped(run_dir):
    return len([p for p in run_dir.glob("attempt=0/steps/rank=*.jsonl") if p.stat().st_size]) == 2


def on_a_terminal(arguments, seconds):
    """Run the command on a terminal, Ctrl-C it after so long: its exit code and what it wrote."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "tracekit", *arguments], stdin=theirs, stdout=theirs, stderr=theirs,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "120", "LINES": "30"},
    ) as process:  # fmt: skip
        os.close(theirs)
        said = b""
        began_s = None
        while True:
            try:
                said += os.read(ours, 65536)
            except OSError:  # the terminal is closed: it has ended
                break
            began_s = began_s or time.monotonic()  # since its first word: it takes long to start
            if began_s and time.monotonic() - began_s > seconds:
                process.send_signal(signal.SIGINT)
                began_s = float("inf")
    os.close(ours)
    return process.returncode, said.decode()
