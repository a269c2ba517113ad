"""Limits from a tracekit.toml: taken when they fit, refused by name when they do not."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tracekit.config import Config, check_config, limits_for, read_config
from tracekit.errors import InputError
from tracekit.units import Unit, limit


@dataclass(frozen=True, slots=True)
class Limits:
    late_share: float = limit(0.5, Unit.SHARE, "Half.")
    min_collectives: int = limit(20, Unit.COUNT, "Fewer are luck.")
    min_wait_ns: float = limit(1e6, Unit.NS, "Less is noise.")


def config_of(tmp_path, text):
    path = tmp_path / "tracekit.toml"
    path.write_text(text, encoding="utf-8")
    return read_config(path)


def test_without_a_file_every_detector_keeps_its_limits():
    assert read_config(None) == Config()
    assert limits_for("straggler-rank", Limits, Config()) == Limits()


def test_a_value_takes_the_place_of_the_default(tmp_path):
    config = config_of(tmp_path, "[detectors.straggler-rank]\nlate_share = 0.6\n")
    limits = limits_for("straggler-rank", Limits, config)
    assert limits == Limits(late_share=0.6, min_collectives=20)


def test_other_detectors_are_not_touched(tmp_path):
    config = config_of(tmp_path, "[detectors.straggler-rank]\nlate_share = 0.6\n")
    assert limits_for("idle-gpu", Limits, config) == Limits()


def test_a_whole_number_stands_for_a_float(tmp_path):
    config = config_of(tmp_path, "[detectors.a]\nmin_wait_ns = 5\n")
    value = limits_for("a", Limits, config).min_wait_ns
    assert value == 5.0
    assert isinstance(value, float)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("late_shar = 0.6", "limit 'late_shar' does not exist; the nearest is 'late_share'"),
        ('late_share = "0.6"', "late_share: '0.6' is a text, not a number"),
        ("late_share = true", "late_share: True is a truth value, not a number"),
        ("late_share = nan", "late_share: nan is not a finite number"),
        ("late_share = 60", "late_share: 60 is not a share between 0 and 1"),
        ("min_collectives = 2.5", "min_collectives: 2.5 is a float, not a whole number"),
    ],
)
def test_a_limit_that_does_not_fit_is_refused_by_name(tmp_path, line, message):
    config = config_of(tmp_path, f"[detectors.straggler-rank]\n{line}\n")
    with pytest.raises(InputError) as caught:
        check_config(config, {"straggler-rank": Limits})
    assert message in caught.value.message
    assert "[detectors.straggler-rank]" in caught.value.message
    assert "tracekit explain" in caught.value.hint


def test_an_unknown_detector_is_refused_with_the_nearest(tmp_path):
    config = config_of(tmp_path, "[detectors.stragler-rank]\n")
    with pytest.raises(InputError, match=r"'stragler-rank' does not exist; .* 'straggler-rank'"):
        check_config(config, {"straggler-rank": Limits, "idle-gpu": Limits})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[detector.a]\n", "table 'detector' does not exist; the nearest is 'detectors'"),
        ("detectors = 3\n", r"\[detectors\] is a whole number, not a table"),
        ("[detectors]\nidle-gpu = 3\n", r"\[detectors.idle-gpu\] is a whole number, not a table"),
        ("[detectors", "not TOML"),
    ],
)
def test_a_file_of_another_shape_is_refused(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        config_of(tmp_path, text)


def test_a_file_that_is_not_there_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match=r"absent\.toml: No such file"):
        read_config(tmp_path / "absent.toml")


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "tracekit.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not TOML"):
        read_config(path)
