"""How much a hook may record."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from tracekit.collectors.live import limits
from tracekit.collectors.live.limits import Limits, Probe, allowed_steps, probed, why_no_room


@pytest.mark.parametrize("piece_bytes", [7, 64, 4 << 20])
def test_events_are_counted_across_the_seams_of_pieces(tmp_path, monkeypatch, piece_bytes):
    monkeypatch.setattr(limits, "_READ_BYTES", piece_bytes)
    path = tmp_path / "trace.json"
    path.write_text(json.dumps([{"ph": "X"}] * 41, separators=(",", ":")))
    assert probed(path) == Probe(n_events=41, size_bytes=path.stat().st_size)


def test_a_window_that_fits_has_all_its_steps():
    assert allowed_steps(5, Probe(n_events=100, size_bytes=100), Limits()) == (5, "")
    assert allowed_steps(5, None, Limits()) == (5, "")


def test_a_window_is_as_long_as_the_limits_allow_and_says_why():
    probe = Probe(n_events=1000, size_bytes=10_000_000)
    n_steps, why = allowed_steps(5, probe, Limits(max_events=3500))
    assert n_steps == 3
    assert "3 steps instead of 5: one has 1,000 events" in why
    assert allowed_steps(5, probe, Limits(max_window_bytes=25_000_000))[0] == 2
    assert allowed_steps(5, probe, Limits(max_window_bytes=1))[0] == 0


def test_nothing_is_written_where_the_disk_or_the_total_is_short(tmp_path, monkeypatch):
    monkeypatch.setattr(limits.shutil, "disk_usage", lambda _: SimpleNamespace(free=3 << 30))
    probe = Probe(n_events=1, size_bytes=1 << 30)
    assert why_no_room(tmp_path, probe, 1, 0, Limits()) == ""
    assert "min_free_bytes" in why_no_room(tmp_path, probe, 2, 0, Limits())
    assert "max_total_bytes" in why_no_room(tmp_path, probe, 1, 16 << 30, Limits())
