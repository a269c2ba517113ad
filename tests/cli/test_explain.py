"""`tracekit explain`: a detector's docstring and limits, or the nearest name."""

from __future__ import annotations

import dataclasses

import pytest
from click.testing import CliRunner

from tracekit.cli import main
from tracekit.detectors import detectors
from tracekit.docgen import HEADINGS


@pytest.mark.parametrize("detector_id", sorted(detectors()))
def test_a_detector_is_explained_in_full(detector_id):
    result = CliRunner().invoke(main, ["explain", detector_id])
    assert result.exit_code == 0
    for heading in HEADINGS:
        assert f"{heading}:\n" in result.output
    words = " ".join(result.output.split())
    for limit in dataclasses.fields(detectors()[detector_id].limits):
        assert f"{limit.name} = {limit.default} ({limit.metadata['unit']})" in words
        assert " ".join(limit.metadata["reason"].split()) in words


def test_a_wrong_name_is_answered_with_the_nearest():
    result = CliRunner().invoke(main, ["explain", "stragler-rank"])
    assert result.exit_code == 2
    assert "the nearest is 'straggler-rank'" in result.stderr
    assert "idle-gpu" in result.stderr


def test_a_name_like_none_is_answered_with_the_list_alone():
    result = CliRunner().invoke(main, ["explain", "nonsense"])
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: no detector is named 'nonsense'\n")
    assert "idle-gpu" in result.stderr
