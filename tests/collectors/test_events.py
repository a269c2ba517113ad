"""Events are read the same however the JSON is laid out and wherever a chunk of it is cut."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tracekit.collectors.chrome_trace import events
from tracekit.errors import InputError


def read_all(path):
    reading = events.Reading()
    found = [
        (event.ph, event.name, event.ts, event.args.correlation)
        for batch in events.batches(path, reading)
        for event in batch
    ]
    return found, reading


@pytest.fixture
def awkward(trace, kernel):
    """Events whose text looks like the seam between two, or like the end of the list."""
    return trace(
        [
            kernel(1, name='}, {"ph": "X"'),
            kernel(
                2, args={"correlation": 2, "x": [{"name": 1}, {"name": 2}, {"ph": [{"ts": 1}]}]}
            ),
            kernel(3, name='}], "traceName": "x"}'),
            {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}},
            kernel(4, args={"y": [{"a": 1}], "correlation": 4}),
            kernel(5, name='é \U0001f600 \\ " \n'),
            {"ph": "s", "id": 5, "pid": 0, "tid": 1, "ts": 5000, "cat": "ac2g", "name": "ac2g"},
            {"id": 5, "ph": "f", "pid": 0, "tid": 7, "ts": 5000, "cat": "ac2g", "name": "ac2g"},
            kernel(6, args={"correlation": 6, "list": [{"b": [{"c": 1}]}], "end": 1}),
        ],
        deviceProperties=[{"id": 0, "name": "GPU", "list": [{"a": 1}]}],
    )


LAYOUTS = {
    "minified": {"separators": (",", ":")},
    "one line": {},
    "pretty-printed": {"indent": 2},
    "not only ASCII": {"ensure_ascii": False},
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_the_layout_of_the_json_does_not_matter(awkward, read, layout):
    found = read(json.dumps(awkward, **layout))
    named = [event["name"] for event in awkward["traceEvents"] if event["ph"] == "X"]
    assert found.names() == named
    assert found.capture.n_events == 9
    assert found.capture.dropped == {}
    assert found.checks().keys() <= {"whole microseconds", "device events without a launch"}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_chunk_may_be_cut_anywhere(awkward, tmp_path, monkeypatch, layout):
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(awkward, **layout), encoding="utf-8")
    whole, _ = read_all(path)
    assert len(whole) == 9
    for piece_bytes in (1, 7, 64, 300):
        monkeypatch.setattr("tracekit.collectors.chrome_trace.stream.PIECE_BYTES", piece_bytes)
        for chunk_bytes in {1, 50, *range(60, 1200, 41 if piece_bytes > 7 else 379)}:
            monkeypatch.setattr(events, "CHUNK_BYTES", chunk_bytes)
            found, reading = read_all(path)
            assert found == whole
            assert (reading.n_lost, reading.n_repaired_chunks) == (0, 0)
            assert not reading.is_truncated
            assert reading.n_bytes == path.stat().st_size


def test_damage_costs_the_same_wherever_a_chunk_is_cut(awkward, tmp_path, monkeypatch):
    text = json.dumps(awkward).replace('"ts": 4000', '"ts": 4"000')
    path = tmp_path / "rank0.json"
    path.write_text(text, encoding="utf-8")
    whole, reading = read_all(path)
    assert (len(whole), reading.n_lost) == (8, 1)
    monkeypatch.setattr("tracekit.collectors.chrome_trace.stream.PIECE_BYTES", 31)
    for chunk_bytes in range(1, 1500, 13):
        monkeypatch.setattr(events, "CHUNK_BYTES", chunk_bytes)
        found, reading = read_all(path)
        assert found == whole, chunk_bytes
        assert reading.n_lost == 1, chunk_bytes


def test_an_event_larger_than_a_chunk_is_read(trace, kernel, read, monkeypatch):
    monkeypatch.setattr(events, "CHUNK_BYTES", 1 << 10)
    large = kernel(2, args={"correlation": 2, "x": [{"name": number} for number in range(9999)]})
    found = read(trace([kernel(1), large, kernel(3)]))
    assert found.names() == ["k1", "k2", "k3"]
    assert found.capture.dropped == {}


def test_an_event_without_end_is_an_error(trace, read, monkeypatch):
    monkeypatch.setattr(events, "MAX_EVENT_BYTES", 1 << 20)
    monkeypatch.setattr(events, "CHUNK_BYTES", 1 << 16)
    text = json.dumps(trace(2)).replace('"k2"', '"k2' + "x" * (8 << 20) + '"')
    with pytest.raises(InputError, match="one event is larger than 1 MiB"):
        read(text)


def test_a_file_without_a_list_is_an_error(read):
    with pytest.raises(InputError, match="no list of events"):
        read('{"traceEvents": 5}')


@pytest.mark.parametrize("opening", ["", " \n", "\ufeff"])
def test_a_bare_list_is_a_trace(trace, read, opening):
    listed = json.dumps(trace(3)["traceEvents"])
    found = read(opening + listed)
    assert found.names() == ["k1", "k2", "k3"]


def test_a_key_of_that_name_inside_a_text_does_not_start_the_list(trace, read):
    found = read(trace(2, note='"traceEvents": [ {"ph": "X"}'))
    assert found.names() == ["k1", "k2"]
    assert found.capture.n_events == 2


NUMBERS = st.integers(0, 10**13).map(lambda n: n / 1000)
EVENTS = st.lists(
    st.builds(
        lambda name, ts, dur, correlation, extra: {
            "ph": "X",
            "cat": "kernel",
            "name": name,
            "pid": 0,
            "tid": 7,
            "ts": ts,
            "dur": dur,
            "args": {"device": 0, "stream": 7, "correlation": correlation, "x": extra},
        },
        st.text(),
        st.integers(1, 10**13).map(lambda n: n / 1000),
        st.integers(0, 10**7).map(lambda n: n / 1000),
        st.integers(0, 2**32),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["name", "ph", "ts"]) | st.text(), inner, max_size=3
                )
            ),
            max_leaves=8,
        ),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(listed=EVENTS, layout=st.sampled_from(list(LAYOUTS.values())), chunk=st.integers(1, 3000))
def test_tables_hold_what_json_holds(listed, layout, chunk, read, trace, monkeypatch):
    monkeypatch.setattr(events, "CHUNK_BYTES", chunk)
    monkeypatch.setattr("tracekit.collectors.chrome_trace.stream.PIECE_BYTES", 97)
    # durations that look broken are mended, which is tested elsewhere
    monkeypatch.setattr("tracekit.collectors.chrome_trace.durations.MEDIAN_FACTOR", 10**9)
    text = json.dumps(trace(listed), **layout)
    found = read(text.encode("utf-8", "surrogatepass"))
    wanted = [
        (round(e["ts"] * 1000), round(e["dur"] * 1000), e["args"]["correlation"])
        for e in json.loads(text)["traceEvents"]
    ]
    rows = found.table("kernels").select("start_ns", "dur_ns", "correlation").rows()
    assert sorted(rows) == sorted(wanted)
    assert found.capture.dropped == {}


def test_bytes_flipped_at_random_never_stop_the_reading(trace, tmp_path):
    clean = json.dumps(trace(40)).encode()
    dice = random.Random(5)
    path = tmp_path / "rank0.json"
    for _ in range(300):
        data = bytearray(clean)
        for _ in range(dice.randint(1, 4)):
            data[dice.randrange(200, len(data))] = dice.randrange(256)
        path.write_bytes(data)
        found, reading = read_all(path)
        n_kernels = sum(1 for ph, *_ in found if ph == "X")
        assert n_kernels + reading.n_lost + reading.is_truncated >= 36
