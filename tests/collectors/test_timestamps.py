"""Times become exact integer nanoseconds, however a file writes them."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.collectors.chrome_trace.timestamps import MAX_US, digits_ns, ns

QUARTER_NS = 1_735_693_560 * 10**9
"""A base as Kineto writes it: 220 × 7,889,238 s, near the end of 2024."""


@given(st.lists(st.integers(0, 2**43 * 1000), min_size=1))
def test_doubles_below_2_to_the_43_are_exact(wanted_ns):
    us = [json.loads(f"{n // 1000}.{n % 1000:03d}") for n in wanted_ns]
    assert ns(us).to_list() == wanted_ns


@given(st.lists(st.integers(-(2**51) * 1000, 2**51 * 1000), min_size=1))
def test_digits_are_exact(wanted_ns):
    assert ns([str(Decimal(n) / 1000) for n in wanted_ns]).to_list() == wanted_ns


def test_halves_of_a_nanosecond_go_to_the_even_one():
    assert [digits_ns("0.0005"), digits_ns("0.0015"), digits_ns("2.0025")] == [0, 2, 2002]


def test_integers_floats_texts_and_nothing_may_be_mixed():
    assert ns([1, 1.5, None, True]).to_list() == [1000, 1500, None, 1000]
    assert ns([1, "1.5", " 2 ", None, ""]).to_list() == [1000, 1500, 2000, None, None]


def test_what_is_no_time_is_null():
    things = [float("nan"), float("inf"), 1e300, -1e300, 10**30, [1], {}, MAX_US * 2]
    assert ns(things).to_list() == [None] * len(things)
    texts = ["nan", "inf", "1e999999999", "-1e999999999", "x", "[1]", str(MAX_US * 2)]
    assert ns(texts).to_list() == [None] * len(texts)


def test_negative_times_keep_their_digits():
    assert ns([-0.001, -1.5, -1000.25]).to_list() == [-1, -1500, -1_000_250]


@pytest.mark.parametrize("ts", ["1735693560123456.789", '"1735693560123456.789"'])
def test_a_unix_time_with_three_decimals_is_exact(trace, read, ts):
    text = json.dumps(trace(1)).replace('"ts": 1000', f'"ts": {ts}')
    found = read(text.replace('"baseTimeNanoseconds": 0, ', ""))
    assert found.table("kernels")["start_ns"].to_list() == [1_735_693_560_123_456_789]


def test_a_unix_time_is_exact_between_whole_ones(trace, read):
    text = json.dumps(trace(200)).replace('"baseTimeNanoseconds": 0, ', "")
    for number in range(1, 201):
        digits = "" if number % 100 else f".{number:03d}"
        text = text.replace(f'"ts": {number}000,', f'"ts": {1735693560000000 + number}{digits},')
    starts = read(text).table("kernels")["start_ns"].to_list()
    assert starts[98:101] == [
        1_735_693_560_000_099_000,
        1_735_693_560_000_100_100,
        1_735_693_560_000_101_000,
    ]


def test_the_base_is_added_as_an_integer(trace, read):
    text = json.dumps(trace(1, baseTimeNanoseconds=QUARTER_NS + 7))
    found = read(text.replace('"ts": 1000', '"ts": 7889237999999.999'))
    assert found.table("kernels")["start_ns"].to_list() == [QUARTER_NS + 7 + 7_889_237_999_999_999]


def test_the_base_may_stand_after_the_events(trace, read):
    document = trace(1)
    del document["baseTimeNanoseconds"]
    found = read(document | {"baseTimeNanoseconds": QUARTER_NS})
    assert found.table("kernels")["start_ns"].to_list() == [QUARTER_NS + 1_000_000]
    assert found.capture.is_clock_base_known


def test_a_missing_base_is_said(trace, read):
    document = trace(1)
    del document["baseTimeNanoseconds"]
    found = read(document)
    assert found.table("kernels")["start_ns"].to_list() == [1_000_000]
    assert found.checks()["unknown clock base"] == 1


def test_absolute_times_need_no_base(trace, kernel, read):
    document = trace([kernel(1, ts=1_735_693_560_000_000)])
    del document["baseTimeNanoseconds"]
    found = read(document)
    assert found.capture.is_clock_base_known
    assert "unknown clock base" not in found.checks()


def test_a_base_is_not_added_to_absolute_times(trace, kernel, read):
    found = read(trace([kernel(1, ts=1_735_693_560_000_000)], baseTimeNanoseconds=QUARTER_NS))
    assert found.table("kernels")["start_ns"].to_list() == [QUARTER_NS]


@pytest.mark.parametrize("base", [-1, 10**30, 1.5, "x", None, [], True])
def test_an_absurd_base_counts_as_missing(trace, read, base):
    found = read(trace(1, baseTimeNanoseconds=base))
    assert found.table("kernels")["start_ns"].to_list() == [1_000_000]
    assert not found.capture.is_clock_base_known


def test_metadata_at_time_zero_does_not_make_times_relative(trace, kernel, read):
    name = {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": 0, "args": {"name": "x"}}
    document = trace([name, kernel(1, ts=1_735_693_560_000_000)])
    del document["baseTimeNanoseconds"]
    assert read(document).capture.is_clock_base_known


def test_the_display_unit_does_not_change_times(trace, read):
    for unit in ("ms", "ns", "us"):
        found = read(trace(1, displayTimeUnit=unit))
        assert found.table("kernels")["start_ns"].to_list() == [1_000_000]


def test_a_kernel_that_was_never_stamped_is_dropped_and_counted(trace, kernel, read):
    found = read(trace([kernel(1), kernel(2, ts=0, dur=0), kernel(3, ts=0)]))
    assert found.names() == ["k1"]
    assert found.capture.dropped == {"no start": 2}


def test_the_first_event_of_a_file_that_counts_from_its_own_zero_is_kept(trace, kernel, read):
    document = trace([kernel(1, ts=0), kernel(2), kernel(3, ts=0, dur=0), kernel(4, ts=None)])
    del document["baseTimeNanoseconds"]
    found = read(document)
    assert found.names() == ["k1", "k2"]
    assert found.capture.dropped == {"no start": 2}
