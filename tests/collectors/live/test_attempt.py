"""Which attempt a rank belongs to, without asking another."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tracekit.collectors.live.attempt import claimed, job_key


def names(tmp_path, *claims):
    return [claimed(tmp_path, rank, None, key).name for rank, key in claims]


def test_ranks_of_one_launch_share_an_attempt(tmp_path):
    assert names(tmp_path, (0, "a"), (1, "a"), (2, "a")) == ["attempt=0"] * 3


def test_another_launch_is_another_attempt(tmp_path):
    claims = [(0, "a"), (1, "a"), (1, "b"), (0, "b"), (0, "c")]
    assert names(tmp_path, *claims) == ["attempt=0"] * 2 + ["attempt=1"] * 2 + ["attempt=2"]


def test_a_rank_that_comes_again_is_another_attempt_although_nothing_tells_the_launches(tmp_path):
    claims = [(0, "a"), (1, "a"), (0, "a"), (1, "a")]
    assert names(tmp_path, *claims) == ["attempt=0"] * 2 + ["attempt=1"] * 2


def test_a_number_that_is_given_is_taken(tmp_path):
    assert claimed(tmp_path, 0, 7, "a").name == "attempt=7"


def test_the_key_is_that_of_the_launch():
    launch = {"MASTER_ADDR": "a", "MASTER_PORT": "1", "TORCHELASTIC_RESTART_COUNT": "0"}
    assert job_key(launch | {"RANK": "0"}) == job_key(launch | {"RANK": "1"})
    assert job_key(launch) != job_key(launch | {"TORCHELASTIC_RESTART_COUNT": "1"})


def test_half_a_file_of_another_launch_does_not_stop_this_one(tmp_path):
    claimed(tmp_path, 0, None, "a")
    (tmp_path / "attempt=0/job.json").write_text('{"key": "a"')
    assert names(tmp_path, (1, "a"), (2, "a")) == ["attempt=1"] * 2


def test_a_disk_that_is_full_leaves_no_file_behind(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space"):
        claimed(tmp_path, 0, None, "a")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_file_system_without_links_does_too(tmp_path, monkeypatch):
    def no_links(*_, **__):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", no_links)
    assert names(tmp_path, (0, "a"), (1, "a")) == ["attempt=0"] * 2
    assert sorted(path.name for path in (tmp_path / "attempt=0").iterdir()) == ["job.json", "ranks"]
