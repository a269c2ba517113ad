"""Damaged files lose at most the damaged event, and the loss is counted."""

from __future__ import annotations

import gzip
import json

import pytest

from tracekit.errors import InputError

SPANS = [f"k{number}" for number in range(1, 10)]


@pytest.fixture
def text(trace):
    """Nine kernels, one a line."""
    lines = ",\n".join(json.dumps(event) for event in trace(9)["traceEvents"])
    return json.dumps(trace([])).replace('"traceEvents": []', f'"traceEvents": [\n{lines}\n]')


def without(*lost: int) -> list[str]:
    return [name for name in SPANS if int(name[1:]) not in lost]


@pytest.mark.parametrize(
    "name",
    [
        'say "hi"',
        'a"b',
        '"',
        r"C:\dir\new",
        "C:\\dir\\",
        'void f<"x">()',
        'x", "y',
        'a"}, {"ph": "X", "b',
    ],
)
def test_an_unescaped_name_costs_its_event_only(text, read, name):
    found = read(text.replace('"k5"', f'"{name}"'))
    assert [each for each in found.names() if each in SPANS] == without(5)
    n_kept = len(found.names()) - 8
    assert n_kept + found.capture.dropped.get("damaged", 0) >= 1
    if '"' in name and name != 'a"}, {"ph": "X", "b':
        assert found.capture.dropped == {"damaged": 1}
        assert found.checks()["damaged events"] == 1


def test_a_backslash_that_escapes_nothing_costs_nothing(text, read):
    found = read(text.replace('"k5"', r'"C:\dir\src"'))
    assert found.names()[4] == r"C:\dir\src"
    assert found.capture.dropped == {}
    assert "repaired JSON" in found.checks()


def test_an_escaped_backslash_is_read_as_one(text, read):
    found = read(text.replace('"k5"', r'"a\\d\"e\u00e9"').replace('"k6"', '"b\x01"'))
    assert found.names()[4:6] == ['a\\d"eé', "b "]
    assert found.capture.dropped == {}


@pytest.mark.parametrize("control", ["\x00", "\x01", "\x1b[31m", "\x1f"])
def test_control_characters_cost_nothing(text, read, control):
    found = read(text.replace('"k5"', f'"k5{control}"'))
    assert len(found.names()) == 9
    assert found.names()[4].startswith("k5 ")
    assert found.capture.dropped == {}


@pytest.mark.parametrize("line_break", ["\n", "\t", "\r\n"])
def test_line_breaks_in_a_name_cost_nothing(text, read, line_break):
    found = read(text.replace('"k5"', f'"k{line_break}5"'))
    assert found.names()[4].split() == ["k", "5"]
    assert found.capture.dropped == {}


@pytest.mark.parametrize("value", ["nan", "NaN", "-nan", "inf", "-inf", "Infinity", "-Infinity"])
def test_raw_non_numbers_become_null(text, read, value):
    found = read(text.replace('"correlation": 5', f'"correlation": {value}'))
    assert found.names() == SPANS
    assert found.table("kernels")["correlation"].to_list() == [1, 2, 3, 4, None, 6, 7, 8, 9]
    assert found.capture.dropped == {}


def test_words_like_nan_in_a_name_stay(text, read):
    name = "f: nan, inf"
    found = read(
        text.replace('"k5"', f'"{name}"').replace('"correlation": 7', '"correlation": nan')
    )
    assert found.names()[4] == name


def test_bad_utf8_costs_nothing(text, read):
    found = read(text.replace('"k5"', '"k?5"').encode().replace(b"k?5", b"k\xff\xfe5"))
    assert found.names()[4] == "k\ufffd\ufffd5"
    assert found.capture.dropped == {}


def test_half_of_a_surrogate_pair_costs_nothing(text, read):
    found = read(text.replace('"k5"', r'"\ud83d"').replace('"k6"', r'"\ud83d\ude00"'))
    assert found.names()[4:6] == ["\ufffd", "\U0001f600"]


def test_the_last_of_duplicate_keys_counts(text, read):
    found = read(text.replace('"correlation": 5', '"correlation": 1, "correlation": 55'))
    assert found.table("kernels")["correlation"][4] == 55


@pytest.mark.parametrize("wrong", ['"name": null', '"name": 5', '"name": ["k5"]'])
def test_a_name_of_another_type_is_kept_as_text(text, read, wrong):
    found = read(text.replace('"name": "k5"', wrong))
    assert len(found.names()) == 9
    assert found.capture.dropped == {}


def test_arguments_of_another_type_are_left_out(text, read):
    args = '"args": {"device": 0, "stream": 7, "correlation": 5}'
    for wrong in ('"args": null', '"args": []', '"args": "x"'):
        found = read(text.replace(args, wrong))
        assert found.names() == SPANS
        assert found.table("kernels")["stream"][4] == 7  # from the row's tid


@pytest.mark.parametrize("thing", ["null", "5", '"text"', "[]", "{}"])
def test_what_is_no_event_in_the_list_is_passed_over(text, read, thing):
    found = read(
        text.replace(
            '{"ph": "X", "cat": "kernel", "name": "k5"',
            thing + ",\n" + '{"ph": "X", "cat": "kernel", "name": "k5"',
        )
    )
    assert found.names() == SPANS


def test_nesting_without_end_costs_its_event_only(text, read):
    deep = "[" * 200_000 + "]" * 200_000
    found = read(text.replace('"correlation": 5', f'"correlation": 5, "x": {deep}'))
    assert found.names() == without(5)
    assert found.capture.dropped == {"damaged": 1}


@pytest.mark.parametrize("number", ["9" * 5000, "1e999", "-1e999", "9" * 30])
def test_absurd_numbers_cost_at_most_their_event(text, read, number):
    found = read(text.replace('"correlation": 5', f'"correlation": {number}'))
    assert [name for name in found.names() if name != "k5"] == without(5)


@pytest.mark.parametrize("ts", ['"x"', "[]", "1e300", "-1e300", '"1e999999999"', "9" * 30, "true"])
def test_an_event_without_a_time_is_dropped_and_counted(text, read, ts):
    found = read(text.replace('"ts": 5000', f'"ts": {ts}'))
    assert [name for name in found.names() if name != "k5"] == without(5)


def test_every_cut_keeps_all_whole_events(text, read):
    start = text.index("[\n{") + 2
    for end in range(start + 200, len(text), 37):
        cut = text[:end]
        n_whole = cut.count("}}")
        if n_whole == 0:
            continue
        found = read(cut)
        assert found.names() == SPANS[:n_whole]
        is_cut = "]" not in cut[start:]
        assert ("truncated" in found.checks()) == is_cut
        assert found.capture.dropped == {}


def test_a_cut_file_that_is_damaged_too_counts_the_damage_alone(text, read):
    cut = text.replace('"k5"', '"k"5"')[: text.index('"k8"')]
    found = read(cut)
    assert found.names() == without(5, 8, 9)
    assert found.capture.dropped == {"damaged": 1}


def test_a_cut_before_the_events_is_an_error(text, read):
    with pytest.raises(InputError, match="no list of events"):
        read(text[: text.index('"traceEvents"')])


def test_a_cut_gzip_keeps_what_was_whole(text, read):
    packed = gzip.compress(text.encode(), compresslevel=0)
    found = read(packed[: len(packed) - 700], "rank0.json.gz")
    assert 0 < len(found.names()) < 9
    assert found.names() == SPANS[: len(found.names())]
    assert "truncated" in found.checks()


def test_a_corrupt_gzip_keeps_what_came_before(trace, read):
    text = json.dumps(trace(30_000)).encode()
    packed = bytearray(gzip.compress(text))
    packed[len(packed) // 2 : len(packed) // 2 + 64] = b"\xff" * 64
    found = read(bytes(packed), "rank0.json.gz")
    n = len(found.names())
    assert 1000 < n < 30_000
    assert found.names()[:1000] == [f"k{number}" for number in range(1, 1001)]
    assert "gzip" in next(c.detail for c in found.capture.quality if c.check == "truncated")


def test_several_gzip_members_are_read_as_one(text, read):
    half = len(text) // 2
    packed = gzip.compress(text[:half].encode()) + gzip.compress(text[half:].encode())
    assert read(packed, "rank0.json.gz").names() == SPANS


def test_a_bomb_of_gzip_ends_at_the_bound(text, read, monkeypatch):
    monkeypatch.setattr("tracekit.collectors.chrome_trace.stream.MIN_BOMB_BYTES", 1 << 20)
    packed = gzip.compress(text.encode() + b" " * (64 << 20))
    found = read(packed, "rank0.json.gz")
    assert found.capture.n_bytes < 32 << 20
    assert found.names() == SPANS


def test_empty_gzip_members_end_at_the_bound(text, read):
    packed = gzip.compress(text.encode()) + gzip.compress(b"") * 5000
    assert read(packed, "rank0.json.gz").names() == SPANS


def test_metadata_that_is_no_json_after_the_events_costs_nothing(text, read):
    found = read(text.replace('"traceName"', '"my key": {bad json}, "traceName"'))
    assert found.names() == SPANS
    assert "truncated" not in found.checks()


def test_metadata_that_is_no_json_before_the_events_costs_nothing(text, read):
    found = read(text.replace('"schemaVersion"', '"my "key"": bad, "schemaVersion"'))
    assert found.names() == SPANS


def test_an_empty_list_is_an_error(trace, read):
    with pytest.raises(InputError, match="list of events is empty"):
        read(trace([]))


def test_a_trace_of_another_tool_is_an_error(trace, read):
    with pytest.raises(InputError, match="none of a profiler"):
        read(trace([{"ph": "B", "name": "a", "ts": 1}, {"ph": "E", "name": "a", "ts": 2}]))
