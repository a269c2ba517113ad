"""One line a step: what it holds, how long it may be, what it takes on disk."""

from __future__ import annotations

import json

import pytest

from tracekit.collectors.live import summary as module
from tracekit.collectors.live.device_times import DeviceStep
from tracekit.collectors.live.summary import MAX_PARTS, StepSummary

MAX_LINE_BYTES = 20_000


@pytest.fixture
def path(tmp_path):
    return tmp_path / "steps" / "rank=000000.jsonl"


@pytest.fixture
def summary(path):
    made = StepSummary(path)
    yield made
    made.close()


def lines(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.mark.parametrize(
    ("dur_ns", "expected"),
    [
        ([7], [1, 7, 7, 7]),
        ([4, 1, 3, 2], [4, 10, 2, 4]),  # the second of four, the fourth: ceil(0.99 * 4)
        (range(1, 101), [100, 5050, 50, 99]),
        (range(1, 102), [101, 5151, 51, 100]),  # ceil(0.5 * 101) = 51, ceil(99.99) = 100
        (range(200, 0, -1), [200, 20100, 100, 198]),
    ],
)
def test_median_and_p99_are_those_of_the_nearest_rank(summary, path, dur_ns, expected):
    for each in dur_ns:
        summary.add("part", each)
    summary.end(3, 1000)
    summary.close()
    (line,) = lines(path)
    assert (line["step"], line["dur_ns"], line["parts"]) == (3, 1000, {"part": expected})


@pytest.mark.parametrize("letter", ["x", "ü", "\\"])
def test_a_line_stays_below_20_kb(summary, path, letter):
    for number in range(500):
        summary.add(letter * 297 + f"{number:03}", 10**15 + number)
    summary.end(0, 10**15)
    summary.close()
    (line,) = path.read_bytes().splitlines()
    assert len(line) <= MAX_LINE_BYTES
    parts = json.loads(line)["parts"]
    assert len(parts) == MAX_PARTS
    # the longest 64 of 500, each by the end of its name
    assert {int(name[-3:]) for name in parts} == set(range(436, 500))


@pytest.mark.parametrize("letter", ["x", "ü"])
def test_a_line_with_the_times_of_a_device_stays_below_20_kb(summary, path, letter):
    parts_ns = {letter * 297 + f"{number:03}": [10**15 + number] for number in range(100)}
    for name, (dur_ns,) in parts_ns.items():
        summary.add(name, dur_ns)
    summary.end(9, 10**15, DeviceStep(step=7, dur_ns=10**15, parts_ns=parts_ns))
    summary.close()
    (line,) = path.read_bytes().splitlines()
    assert len(line) <= MAX_LINE_BYTES
    device = json.loads(line)["device"]
    assert (device["step"], device["dur_ns"]) == (7, 10**15)
    assert {int(name[-3:]) for name in device["parts"]} == set(range(76, 100))


def test_the_device_has_count_sum_median_and_p99_too(summary, path):
    spans_ns = {"forward": [4, 1, 3, 2], "optimizer": [7]}
    summary.end(5, 12, DeviceStep(step=4, dur_ns=20, parts_ns=spans_ns))
    summary.end(6, 12)
    summary.close()
    line, without = lines(path)
    parts = {"forward": [4, 10, 2, 4], "optimizer": [1, 7, 7, 7]}
    assert line["device"] == {"step": 4, "dur_ns": 20, "parts": parts}
    assert "device" not in without


def test_parts_of_one_step_are_not_in_the_next(summary, path):
    summary.add("a", 1)
    summary.end(0, 10)
    summary.end(1, 20)
    summary.close()
    assert [line["parts"] for line in lines(path)] == [{"a": [1, 1, 1, 1]}, {}]


def test_two_files_of_bounded_size_are_all_that_is_kept(path, monkeypatch):
    monkeypatch.setattr(module, "MAX_FILE_BYTES", 10_000)
    summary = StepSummary(path)
    for step in range(1000):
        summary.end(step, 1)
    summary.close()
    files = sorted(path.parent.iterdir())
    assert [file.name for file in files] == ["rank=000000.jsonl", "rank=000000.old.jsonl"]
    assert all(file.stat().st_size <= 10_000 + MAX_LINE_BYTES for file in files)
    kept = [line["step"] for file in reversed(files) for line in lines(file)]
    assert kept == list(range(kept[0], 1000))
    assert kept[0] > 700  # 10 kB are some 70 lines


def test_a_line_can_be_read_once_its_step_has_ended(summary, path):
    summary.end(0, 1)
    written = path.read_text("utf-8")
    for step in range(1, 20):
        module.time.sleep(0.012)  # longer than a line may wait
        summary.end(step, 1)
        written = path.read_text("utf-8")
        assert json.loads(written.splitlines()[-1])["step"] == step


def test_the_host_counts_what_this_thread_used(summary, path):
    until_ns = module.time.thread_time_ns() + 30_000_000
    while module.time.thread_time_ns() < until_ns:
        pass
    module.time.sleep(0.001)
    summary.end(0, 1)
    summary.close()
    (line,) = lines(path)
    assert line["host"]["cpu_ns"] >= 30_000_000
    assert line["host"]["n_waits"] >= 1
