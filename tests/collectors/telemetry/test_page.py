"""The page for users names every metric, and none that does not exist."""

from __future__ import annotations

import re
from pathlib import Path

from tracekit.collectors.telemetry.metrics import UNITS

PAGE = Path(__file__).parents[3] / "docs/telemetry.md"
SUFFIXES = ("_w", "_c", "_j", "_s", "_mhz", "_bytes", "_share", "_count", "_reasons")


def test_the_page_and_the_vocabulary_are_the_same():
    named = set(re.findall(r"`([a-z0-9_]+)`", PAGE.read_text(encoding="utf-8")))
    assert {name for name in named if name.endswith(SUFFIXES)} == set(UNITS)


def test_every_name_ends_in_its_unit():
    ends = {
        "W": "_w",
        "°C": "_c",
        "MHz": "_mhz",
        "bytes": "_bytes",
        "bytes/s": "_bytes_per_s",
        "share": "_share",
        "J": "_j",
        "s": "_s",
        "count": "_count",
        "bit mask": "_reasons",
    }
    assert all(name.endswith(ends[unit]) for name, unit in UNITS.items())
