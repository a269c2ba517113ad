"""The table of benchmarks is written, with tiny traces and no peer: what is missing is said."""

from __future__ import annotations

import gzip
import json
import sys

import pytest

from benchmarks import inputs, measure, table
from benchmarks.__main__ import SECTIONS
from benchmarks.amplified import amplified

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cells():
    """The cells of each row that `python -m benchmarks` prints where no peer is installed."""
    printed = []
    with pytest.MonkeyPatch.context() as patch:
        for title in SECTIONS:
            patch.setattr(sys.modules[SECTIONS[title].__module__], "N_RUNS", 1, raising=False)
            patch.setattr(
                sys.modules[SECTIONS[title].__module__],
                "is_installed",
                lambda _: False,
                raising=False,
            )
        patch.setattr("builtins.print", lambda text, **_: printed.append(text))
        inputs.main("", SECTIONS, ["--large", "1", "--huge", "2"])
    lines = "\n".join(printed).splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "|" in line]


def test_every_section_has_rows_of_five_cells(cells):
    assert cells[0] == ["what", "tracekit", "peer", "ratio", "target"]
    assert {len(row) for row in cells} == {5}
    titles = [i for i, row in enumerate(cells) if row[0].startswith("**")]
    assert [cells[i][0].strip("*") for i in titles] == list(SECTIONS)
    assert all(
        after - before > 1 for before, after in zip(titles, [*titles[1:], len(cells)], strict=True)
    )


def test_a_missing_peer_is_said_with_how_to_install_it(cells):
    skipped = {row[2] for row in cells if row[2].startswith("skipped")}
    assert len(skipped) == 3  # HTA, simdjson, selenium
    assert all("pip install" in text for text in skipped)


def test_a_ratio_says_whether_its_target_is_met():
    assert table.at_least(10.0, 10) == ("10.0 ×", "≥ 10 ×: met")
    assert table.at_least(9.9, 10)[1] == "≥ 10 ×: missed"
    assert table.at_most(2.51, 2.5)[1] == "≤ 2.5 ×: missed"
    assert table.bound(699.9, "MB", most=700) == "≤ 700 MB: met"
    assert table.bound(79.9, "MB", least=80) == "≥ 80 MB: missed"


def test_an_amplified_trace_repeats_its_events_later(tmp_path):
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 10.5, "dur": 2.25}
    events = [kernel | {"args": {"correlation": 3, "stream": 7}}, kernel | {"ts": 20.5}]
    source, target = tmp_path / "small.json", tmp_path / "large.json.gz"
    source.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    n_bytes = amplified(source, target, 400)
    text = gzip.decompress(target.read_bytes())
    assert len(text) == n_bytes >= 400
    made = json.loads(text)
    assert made["schemaVersion"] == 1
    assert made["traceEvents"][:2] == events
    # 10 µs from the first to the last start, and 0.1 s between repetitions
    moved = made["traceEvents"][2]
    assert (moved["ts"], moved["dur"], moved["args"]["correlation"]) == (100020.5, 2.25, 7)


def test_the_largest_process_of_a_command_is_measured():
    grown = measure.measured([sys.executable, "-c", "b'x' * 100_000_000"])
    assert 100_000_000 < grown.peak_bytes < 150_000_000
    with pytest.raises(RuntimeError, match="NameError"):
        measure.measured([sys.executable, "-c", "nothing"])
