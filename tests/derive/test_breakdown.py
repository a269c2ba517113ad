"""The five parts of a step add up exactly, and so do the three of exposed communication."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tracekit.derive.breakdown import PARTS, SPLITS, breakdown

EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["compute", "copy", "collective", "unmatched"]),
        st.integers(0, 60),  # start
        st.integers(0, 25),  # duration
        st.integers(0, 1),  # device
        st.integers(0, 15),  # how much longer than the other rank a collective takes
    ),
    min_size=1,
    max_size=14,
)


def whole(run, rank=0):
    return breakdown(run, rank).filter(pl.col("step").is_null()).collect()


def parts_us(row):
    return {name: row[name] // 1000 for name in (*PARTS, *SPLITS)}


def filled(runs, events):
    """Two ranks with the same collectives; rank 0 waits in them for as long as the events say."""
    first, second = runs.Trace(), runs.Trace()
    for number, (kind, start, dur, device, wait) in enumerate(events):
        stream = 30 + number
        if kind == "compute":
            first.kernel(start, dur, device=device, stream=stream)
        elif kind == "copy":
            first.copy(start, dur, device=device)
        else:
            group = {"members": [0, 1], "sequence": number, "stream": stream, "device": device}
            first.collective(start, dur + wait, **group)
            if kind == "collective":
                second.collective(start + wait, dur, **group)
    return {0: first, 1: second}


def brute_force(events, device):
    """Every part of rank 0 counted µs by µs."""
    totals = dict.fromkeys((*PARTS, *SPLITS), 0)
    rows = [event for event in events if event[3] == device]
    ends = [
        start + dur + wait * (kind in {"collective", "unmatched"})
        for kind, start, dur, _, wait in rows
    ]
    for at in range(min(row[1] for row in rows), max(ends)):
        kinds = set()
        for kind, start, dur, _, wait in rows:
            if kind in {"compute", "copy"} and start <= at < start + dur:
                kinds.add(kind)
            if kind == "collective" and start <= at < start + dur + wait:
                kinds.add("waiting" if at < start + wait else "transfer")
            if kind == "unmatched" and start <= at < start + dur + wait:
                kinds.add("unsplit")
        communicating = kinds & {"waiting", "transfer", "unsplit"}
        if "compute" in kinds:
            totals["overlapped_ns" if communicating else "exposed_compute_ns"] += 1
        elif communicating:
            totals["exposed_communication_ns"] += 1
            split = next(s for s in ("transfer", "waiting", "unsplit") if s in kinds)
            names = dict(zip(("waiting", "transfer", "unsplit"), SPLITS, strict=True))
            totals[names[split]] += 1
        elif "copy" in kinds:
            totals["exposed_copy_ns"] += 1
        else:
            totals["idle_ns"] += 1
    return totals


@settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(EVENTS)
def test_parts_equal_a_count_of_every_microsecond(make_run, runs, events):
    rows = whole(make_run(filled(runs, events)))
    for row in rows.iter_rows(named=True):
        assert sum(row[name] for name in PARTS) == row["dur_ns"]
        assert sum(row[name] for name in SPLITS) == row["exposed_communication_ns"]
        assert min(row[name] for name in (*PARTS, *SPLITS)) >= 0
        assert parts_us(row) == brute_force(events, row["device"])


def test_a_step_by_hand(make_run, trace):
    # µs      0    10   20   30   40   50   60   70   80   90  100
    # compute [---------------]             [----]
    # comm              [-------------]     [---------]
    # copy                               [--------]        [--]
    trace.kernel(0, 30)
    trace.kernel(60, 10)
    trace.collective(20, 25)
    trace.collective(60, 20)
    trace.copy(50, 15)
    trace.copy(90, 10, "memset")
    (row,) = whole(make_run(trace)).iter_rows(named=True)
    assert parts_us(row) == {
        "exposed_compute_ns": 20,  # 0–20
        "overlapped_ns": 20,  # 20–30, 60–70
        "exposed_communication_ns": 25,  # 30–45, 70–80
        "exposed_copy_ns": 20,  # 50–60, 90–100: a memset is a copy
        "idle_ns": 15,  # 45–50, 80–90
        "exposed_waiting_ns": 0,
        "exposed_transfer_ns": 0,
        "unsplit_communication_ns": 25,  # no other rank: not known
    }
    assert row["compute_ns"] == 40_000
    assert row["communication_ns"] == 45_000


def test_an_event_that_crosses_a_step_is_split_there(make_run, trace):
    trace.step(1, 0, 100).step(2, 100, 100)
    trace.kernel(10, 20, launched=5)
    trace.kernel(90, 40, launched=80)  # of step 1, runs to 130
    trace.kernel(120, 10, launched=110, stream=8)  # opens step 2 at 120
    trace.kernel(140, 10, launched=115)
    rows = breakdown(make_run(trace), 0).drop_nulls("step").collect()
    assert rows.select("step", "start_ns", "dur_ns", "compute_ns", "idle_ns").rows() == [
        (1, 10_000, 110_000, 50_000, 60_000),  # 10–120: 20 + 30 of the 40
        (2, 120_000, 30_000, 20_000, 10_000),  # 120–150: the other 10, and 10
    ]


def test_idle_before_the_next_steps_first_event_lies_in_the_earlier_step(make_run, trace):
    trace.step(1, 0, 100).step(2, 100, 100)
    trace.kernel(10, 50, launched=5)
    trace.kernel(150, 10, launched=140)
    rows = breakdown(make_run(trace), 0).drop_nulls("step").collect()
    assert rows.select("step", "idle_ns").rows() == [(1, 90_000), (2, 0)]


def test_two_devices_of_one_process_are_never_merged(make_run, trace):
    trace.kernel(0, 50, device=0)
    trace.kernel(90, 10, device=0)
    trace.kernel(50, 40, device=1)
    rows = whole(make_run(trace))
    # together they are always busy; device 0 alone is idle from 50 to 90
    assert rows.select("device", "dur_ns", "idle_ns").rows() == [
        (0, 100_000, 40_000),
        (1, 40_000, 0),
    ]


def test_waiting_hidden_under_compute_is_not_exposed(make_run, runs):
    first, second = runs.Trace(), runs.Trace()
    first.collective(0, 100, members=[0, 1])
    first.kernel(0, 40)
    second.collective(60, 40, members=[0, 1])
    row = whole(make_run({0: first, 1: second})).row(0, named=True)
    # rank 0 waits 60 µs, of which 40 lie under its own kernel; the transfer takes 40
    assert parts_us(row)["exposed_waiting_ns"] == 20
    assert parts_us(row)["exposed_transfer_ns"] == 40
    assert parts_us(row)["overlapped_ns"] == 40


@pytest.mark.parametrize("shift_us", [0, 12_000_000, -5_000_000])
def test_a_shift_of_the_whole_run_changes_no_part(make_run, trace, shift_us):
    trace.step(1, shift_us, 100).step(2, shift_us + 100, 100)
    trace.kernel(shift_us + 10, 20, launched=shift_us + 5)
    trace.collective(shift_us + 25, 30)
    trace.kernel(shift_us + 150, 20, launched=shift_us + 140)
    rows = breakdown(make_run(trace), 0).collect()
    assert rows.select("step", "dur_ns", *PARTS).rows() == [
        (1, 140_000, 15_000, 5_000, 25_000, 0, 95_000),
        (None, 160_000, 35_000, 5_000, 25_000, 0, 95_000),
        (2, 20_000, 20_000, 0, 0, 0, 0),
    ]


def test_a_rank_without_events_has_no_parts(make_run, trace):
    assert breakdown(make_run(trace), 0).collect().is_empty()
