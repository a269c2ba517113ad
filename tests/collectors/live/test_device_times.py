"""Times of the device from a made-up interface of events, which the tests complete and fail."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from types import SimpleNamespace

import pytest

from tracekit.collectors.live import device_times as module
from tracekit.collectors.live.device_times import EVERY, MAX_EVENTS, MAX_HELD, DeviceTimes

MS = 10**6


class Device:
    """A device, its module and torch: it comes to an event when it is told to."""

    def __init__(self):
        self.now_ms = 0.0
        self.is_capturing = False
        self.is_initialised = True
        self.is_behind = False
        self.fails_at = None
        self.made = []
        self.calls = Counter()
        self.torch = SimpleNamespace(
            Event=self.event,
            accelerator=SimpleNamespace(current_accelerator=lambda: "fake"),
            get_device_module=lambda _: SimpleNamespace(
                is_initialized=lambda: self.is_initialised,
                is_current_stream_capturing=lambda: self.is_capturing,
            ),
        )

    def event(self, device, *, enable_timing):
        assert device == "fake"
        assert enable_timing
        self.call("create")
        self.made.append(Event(self))
        return self.made[-1]

    def call(self, name):
        assert not self.is_capturing, f"{name} disturbs the capture"
        self.calls[name] += 1
        if name == self.fails_at:
            raise RuntimeError(name)


class Event:
    def __init__(self, device):
        self.device = device
        self.at_ms = None
        self.is_done = False

    def record(self):
        self.device.call("record")
        self.at_ms = self.device.now_ms
        self.is_done = not self.device.is_behind

    def query(self):
        self.device.call("query")
        return self.is_done

    def elapsed_time(self, other):
        self.device.call("elapsed_time")
        assert self.is_done
        assert other.is_done
        return other.at_ms - self.at_ms


@pytest.fixture
def device(monkeypatch):
    made = Device()
    monkeypatch.setitem(sys.modules, "torch", made.torch)
    return made


@pytest.fixture
def times():
    return DeviceTimes()


@pytest.fixture
def step(device, times):
    """Run a step of 10 ms whose forward pass takes 4 ms of them; gives what was read at its end."""

    def run(number):
        times.find()
        begin = times.begin()
        device.now_ms += 4
        times.end("forward", begin)
        device.now_ms += 6
        return times.end_step(number)

    return run


def test_a_step_is_read_when_the_device_has_come_past_it(device, step):
    device.is_behind = True
    assert step(0) is None  # nothing marks the beginning of the first
    assert step(1) is None
    assert step(2) is None
    for event in device.made:
        event.is_done = True
    read = step(3)
    assert (read.step, read.dur_ns) == (1, 10 * MS)
    assert (step(4).step, step(5)) == (2, None)


def test_one_of_some_steps_has_its_parts_timed(step):
    read = [step(number) for number in range(3 * EVERY)]
    parts = {each.step: each.parts_ns for each in read if each is not None and each.parts_ns}
    assert parts == {EVERY: {"forward": [4 * MS]}, 2 * EVERY: {"forward": [4 * MS]}}


def test_a_step_that_is_done_before_an_earlier_one_is_read_first(device, step):
    device.is_behind = True
    for number in range(3):
        step(number)
    *_, third_begin, third_end, _ = device.made  # the last begins the next step
    third_begin.is_done = third_end.is_done = True
    assert step(3).step == 2
    for event in device.made:
        event.is_done = True
    assert step(4).step == 1


def test_events_that_never_complete_are_given_up_and_used_again(device, step):
    device.is_behind = True
    assert {step(number) for number in range(100)} == {None}
    n_made = len(device.made)
    assert n_made <= 2 * (MAX_HELD + 2) + 2 * (MAX_HELD // EVERY + 1)
    assert {step(number) for number in range(100, 1000)} == {None}
    assert len(device.made) == n_made


def test_of_a_step_that_is_behind_one_event_is_asked_for(device, times, step):
    for number in range(EVERY):
        step(number)
    times.end("forward", times.begin())
    device.is_behind = True
    before = device.calls["query"]
    assert times.end_step(EVERY) is None
    assert device.calls["query"] - before == 1


def test_in_the_long_run_no_event_is_made(device, step):
    for number in range(2 * EVERY):
        step(number)
    n_made = len(device.made)
    assert [step(number).step for number in range(2 * EVERY, 500)] == list(range(2 * EVERY, 500))
    assert len(device.made) == n_made <= 8


def test_a_step_with_many_parts_uses_so_many_events(device, times):
    times.find()
    for number in range(EVERY):
        times.end_step(number)
    for _ in range(1000):
        times.end("part", times.begin())
    read = times.end_step(EVERY)
    # the beginning of the step, 63 pairs, and the pair that begins with the last one allowed
    assert len(read.parts_ns["part"]) == MAX_EVENTS // 2
    assert len(device.made) <= MAX_EVENTS + 2


def test_a_span_that_never_ends_costs_no_event(device, times):
    for number in range(50 * EVERY):
        times.find()
        times.begin()
        times.end_step(number)
    assert len(device.made) <= 6


def test_nothing_is_recorded_or_asked_for_during_a_capture(device, times, step):
    for number in range(EVERY):
        step(number)
    device.is_capturing = True  # the module asserts that it is left alone
    assert times.begin() is None
    device.is_capturing = False
    begin = times.begin()
    device.is_capturing = True
    times.end("graph", begin)
    assert times.end_step(EVERY) is None
    assert step(EVERY + 1) is None
    device.is_capturing = False
    step(EVERY + 2)
    read = step(EVERY + 3)
    assert (read.step, read.parts_ns) == (EVERY + 3, {})


def test_no_step_is_asked_for_during_a_capture(device, step):
    device.is_behind = True
    for number in range(2):
        step(number)
    device.is_capturing = True
    n_calls = device.calls.total()
    assert step(2) is None
    assert device.calls.total() == n_calls
    device.is_capturing = device.is_behind = False
    for event in device.made:
        event.is_done = True
    assert step(3).step == 1


def test_steps_that_end_in_a_capture_cost_no_event(device, times):
    for number in range(50):
        times.find()
        device.is_capturing = False
        times.end_step(2 * number)
        device.is_capturing = True
        times.end_step(2 * number + 1)
    assert len(device.made) == 1


def test_a_capture_within_a_step_leaves_the_step_timed(device, times, step):
    for number in range(EVERY):
        step(number)
    begin = times.begin()
    device.is_capturing = True
    times.end("graph", begin)
    device.is_capturing = False
    device.now_ms += 5
    read = times.end_step(EVERY)
    assert (read.dur_ns, read.parts_ns) == (5 * MS, {})


@pytest.mark.parametrize("call", ["create", "record", "query", "elapsed_time"])
def test_what_raises_ends_it_for_good(device, step, call):
    for number in range(2):
        step(number)
    if call == "create":
        device.is_behind = True  # so that another one is needed
    device.fails_at = call
    assert {step(number) for number in range(2, 40)} == {None}
    device.fails_at = None
    n_calls = device.calls.total()
    assert {step(number) for number in range(40, 80)} == {None}
    assert device.calls.total() == n_calls


@pytest.mark.parametrize("lacks", ["Event", "accelerator", "get_device_module"])
def test_a_torch_without_what_is_needed_raises_nothing(device, step, lacks):
    delattr(device.torch, lacks)
    assert {step(number) for number in range(40)} == {None}


def test_a_device_that_the_job_has_not_initialised_stays_so(device, step):
    device.is_initialised = False
    assert {step(number) for number in range(40)} == {None}
    assert device.calls.total() == 0
    device.is_initialised = True
    step(40)
    assert step(41).step == 41


def test_a_torch_for_the_cpu_alone_records_nothing(device, step):
    device.torch.accelerator.current_accelerator = lambda: None
    assert {step(number) for number in range(40)} == {None}
    assert device.calls.total() == 0


def test_after_the_stop_nothing_is_held_or_recorded(device, times, step):
    for number in range(EVERY):
        step(number)
    begin = times.begin()
    times.stop()
    n_calls = device.calls.total()
    times.end("forward", begin)
    assert {step(number) for number in range(40)} == {None}
    assert device.calls.total() == n_calls
    assert not times._held
    assert not times._free


def test_torch_is_not_imported():
    code = (
        "import sys\n"
        f"from {module.__name__} import DeviceTimes\n"
        "times = DeviceTimes()\n"
        "for step in range(40):\n"
        "    times.find()\n"
        "    times.end('part', times.begin())\n"
        "    assert times.end_step(step) is None\n"
        "times.stop()\n"
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.torch
def test_with_the_torch_of_this_machine_events_are_made_on_its_device_alone(monkeypatch):
    torch = pytest.importorskip("torch")
    made, event = [], torch.Event
    monkeypatch.setattr(
        torch, "Event", lambda *args, **named: made.append(args) or event(*args, **named)
    )
    times = DeviceTimes()
    for step in range(40):
        times.find()
        times.end("part", times.begin())
        times.end_step(step)
    assert bool(made) == torch.cuda.is_initialized()
