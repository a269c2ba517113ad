"""The file of samples."""

from __future__ import annotations

import pytest

from tracekit.collectors.telemetry.output import Full, Output


def test_lines_are_appended(tmp_path):
    path = tmp_path / "out.jsonl"
    path.write_bytes(b"{}\n")
    Output(path, 10**6).write(b"[]\n")
    assert path.read_bytes() == b"{}\n[]\n"


def test_a_line_that_was_cut_is_ended_first(tmp_path):
    path = tmp_path / "out.jsonl"
    path.write_bytes(b'{}\n{"kind":"sam')
    Output(path, 10**6).write(b"[]\n")
    assert path.read_bytes() == b'{}\n{"kind":"sam\n[]\n'


def test_it_never_grows_beyond_its_size(tmp_path):
    path = tmp_path / "out.jsonl"
    path.write_bytes(b"x" * 2000 + b"\n")
    output = Output(path, 4000)
    for _ in range(9):
        output.write(b"y" * 99 + b"\n")
    with pytest.raises(Full):  # 3001 bytes, and less than 1 KiB left for the last line
        output.write(b"y" * 99 + b"\n")
    output.write_last(b'{"kind":"end"}\n')
    assert path.stat().st_size == 2001 + 900 + 15
    assert path.read_bytes().endswith(b'{"kind":"end"}\n')


def test_a_file_that_is_gone_is_noticed(tmp_path):
    path = tmp_path / "out.jsonl"
    output = Output(path, 10**6)
    assert output.is_there()
    path.unlink()
    assert not output.is_there()
    path.write_text("another file of that name")
    assert not output.is_there()


def test_one_process_writes_to_a_file(tmp_path):
    path = tmp_path / "out.jsonl"
    first = Output(path, 4000)
    with pytest.raises(BlockingIOError):
        Output(path, 4000)
    first.begin_again()
    with pytest.raises(BlockingIOError):
        Output(path, 4000)
