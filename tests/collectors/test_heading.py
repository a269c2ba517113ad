"""What a file says of itself is read before and after its events, and bounded."""

from __future__ import annotations

import json

import pytest

from tracekit.collectors.kineto import peek, sniff


@pytest.fixture
def written(tmp_path):
    def write(document):
        path = tmp_path / "trace.json"
        path.write_text(document if isinstance(document, str) else json.dumps(document), "utf-8")
        return path

    return write


def test_a_rank_may_stand_behind_the_events(trace, written):
    document = trace(3)
    del document["distributedInfo"]
    path = written(document | {"distributedInfo": {"rank": 5, "world_size": 8}})
    assert (peek(path).rank, peek(path).world_size) == (5, 8)


def test_a_rank_before_damaged_metadata_is_found(trace, written):
    text = json.dumps(trace(3)).replace('"traceEvents"', '"user "key": bad, "traceEvents"')
    assert peek(written(text)).rank == 0


def test_a_trace_without_a_rank_has_none(trace, written):
    document = trace(3)
    del document["distributedInfo"]
    assert peek(written(document)).rank is None


@pytest.mark.parametrize("rank", [-1, 10**30, 1.5, "x", None, [], True, "²"])
def test_an_absurd_rank_is_none(trace, written, rank):
    assert peek(written(trace(1, distributedInfo={"rank": rank, "world_size": rank}))).rank is None


@pytest.mark.parametrize("info", [None, 5, [], "x"])
def test_distributed_info_of_another_type_is_none(trace, written, info):
    assert peek(written(trace(1, distributedInfo=info))).rank is None


def test_metadata_larger_than_the_first_look_is_read(trace, written):
    large = {"rank": 3, "world_size": 4, "pg_config": [{"pg_name": str(i)} for i in range(30_000)]}
    path = written(trace(2, distributedInfo=large))
    assert path.stat().st_size > 512 << 10
    assert peek(path).rank == 3
    assert peek(path).started_ns == 1_000_000


def test_nesting_without_end_in_the_metadata_does_not_stop_the_look(trace, written):
    text = json.dumps(trace(1)).replace('"schemaVersion": 1', '"deep": ' + "[" * 99_999)
    assert peek(written(text)).rank == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"a": 1}',
        "hello",
        '[{"name": "x"}]',
        '[{"ph": "X", "name": "x"}]',
        "\x00" * 99,
    ],
)
def test_other_files_are_not_sniffed(written, text):
    assert not sniff(written(text))


def test_a_missing_file_is_not_sniffed(tmp_path):
    assert not sniff(tmp_path / "none.json")
