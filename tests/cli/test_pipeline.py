"""The progress bar of the main job: ranks, bytes and events as they are read."""

from __future__ import annotations

import pytest

from tracekit.cli._pipeline import Seen
from tracekit.store import Capture, SourceIdentity


def capture(rank, n_bytes, n_events):
    source = SourceIdentity(path="x", size_bytes=1, modified_ns=1)
    return Capture(
        rank=rank,
        rank_source="test",
        source=source,
        collector="kineto",
        code="1",
        epoch_ns=0,
        n_bytes=n_bytes,
        n_events=n_events,
    )


@pytest.fixture
def drawn():
    """A list of (amount, note) and what fills it."""
    steps = []
    return steps, Seen(lambda amount=1, note="": steps.append((amount, note)))


def test_each_rank_is_named_with_its_bytes_and_events(drawn):
    steps, seen = drawn
    seen.found(2)
    seen.capture(capture(1, 2_500_000, 40_000))
    seen.capture(capture(0, 1_500_000, 2_000))
    assert [note for _, note in steps] == [
        "rank 1: 2.5 MB, 40,000 events; 1 of 2 ranks: 2.5 MB, 40,000 events",
        "rank 0: 1.5 MB, 2,000 events; 2 of 2 ranks: 4.0 MB, 42,000 events",
    ]


def test_reading_is_one_half_of_the_bar_and_analysing_the_other(drawn):
    steps, seen = drawn
    seen.found(2)
    for rank in (0, 1):
        seen.capture(capture(rank, 1, 1))
    assert sum(amount for amount, _ in steps) == 0.5
    for rank in (0, 1):
        seen.rank(rank)
    assert sum(amount for amount, _ in steps) == 1
