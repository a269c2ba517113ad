"""Waits that no synchronising call shows, on calls and events small enough to read (ms)."""

from __future__ import annotations

import polars as pl
import pytest

from tracekit.what_if.streams import Streams
from tracekit.what_if.unseen_waits import freeing_waits, hidden_waits

MS = 1_000_000
CALLS = {
    "name": pl.String,
    "class": pl.String,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
}


def calls(*rows):
    """Runtime calls from (name, class, start, end), in ms."""
    made = [(name, kind, round(a * MS), round(z * MS)) for name, kind, a, z in rows]
    return pl.DataFrame(made, schema=CALLS, orient="row")


def event(kind, launched, start, end, waited=None):
    """One device event, in ms."""
    return pl.DataFrame(
        {
            "class": [kind],
            "device": [0],
            "stream": [7],
            "correlation": [1],
            "launch_start_ns": [round(launched * MS)],
            "start_ns": [round(start * MS)],
            "end_ns": [round(end * MS)],
            "waited_ns": [None if waited is None else waited * MS],
        },
        schema_overrides={"waited_ns": pl.Int64},
    )


def times_ms(found):
    return [(row["start_ns"] / MS, row["end_ns"] / MS) for row in found.iter_rows(named=True)]


TWO_LAUNCHES = calls(("cudaLaunchKernel", None, 0, 1), ("cudaLaunchKernel", None, 10, 11))
"""Nothing for 9 ms between them."""


@pytest.fixture
def operated(make_run, runs):
    """A run of one rank on which an operator lasts from 1.1 to 9.9 ms."""
    trace = runs.Trace()
    trace.step(0, 0, 20_000)
    trace.op(1100, 8800, "aten::empty")
    return make_run({0: trace})


def test_an_operator_that_lasts_while_a_collective_is_waited_for_waits_too(operated):
    # 8.5 of the 9 ms lie in the collective, 8.8 in the operator
    met = event("communication", 0.5, 1, 9.5, waited=5)
    found = hidden_waits(operated, 0, TWO_LAUNCHES, met)
    assert times_ms(found) == [(1, 9.5)]
    assert found["awaited"].to_list() == [0]


@pytest.mark.parametrize(
    "met",
    [
        pytest.param(event("compute", 0.5, 1, 9.5), id="no collective"),
        pytest.param(event("communication", 0.5, 1, 9.5, waited=0), id="nobody is waited for"),
        pytest.param(event("communication", 0.5, 1, 10.5, waited=5), id="it ends after the host"),
        pytest.param(event("communication", 0.5, 4, 9.5, waited=5), id="it is short"),
        pytest.param(event("communication", 2, 3, 9.5, waited=5), id="launched inside"),
    ],
)
def test_what_does_not_hold_the_host_is_no_wait(operated, met):
    assert hidden_waits(operated, 0, TWO_LAUNCHES, met).is_empty()


def test_without_an_operator_the_host_had_something_else_to_do(make_run, runs):
    trace = runs.Trace()
    trace.step(0, 0, 20_000)
    trace.op(0, 500, "aten::empty")
    met = event("communication", 0.5, 1, 9.5, waited=5)
    assert hidden_waits(make_run({0: trace}), 0, TWO_LAUNCHES, met).is_empty()


def test_a_call_that_frees_waits_until_the_device_is_done():
    streams = Streams(event("compute", 0.5, 1, 4))
    freed = calls(("cudaFree", "allocator", 2, 5), ("cudaFree", "allocator", 6, 8))
    # the second begins when the device has done everything
    assert times_ms(freeing_waits(freed, streams)) == [(2, 4)]


def test_a_short_call_that_frees_is_the_hosts_own_work():
    streams = Streams(event("compute", 0.5, 1, 4))
    assert freeing_waits(calls(("cudaFree", "allocator", 3.5, 4.4)), streams).is_empty()
