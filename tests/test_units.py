"""One way to print a quantity."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import pytest

from tracekit.units import Quantity, Unit, limit, text


@pytest.mark.parametrize(
    ("value", "unit", "printed"),
    [
        (0, Unit.NS, "0 ns"),
        (999, Unit.NS, "999 ns"),
        (1_000, Unit.NS, "1 µs"),
        (1_234_567, Unit.NS, "1.23 ms"),
        (-1_234_567, Unit.NS, "-1.23 ms"),
        (2e9, Unit.NS, "2 s"),
        (12_345e9, Unit.NS, "12,345 s"),
        (12e9, Unit.BYTES, "12 GB"),
        (512, Unit.BYTES, "512 B"),
        (48.5e9, Unit.BYTES_PER_S, "48.5 GB/s"),
        (0.045, Unit.SHARE, "4.5 %"),
        (1, Unit.SHARE, "100.0 %"),
        (1.5, Unit.RATIO, "1.50\N{MULTIPLICATION SIGN}"),
        (1234, Unit.COUNT, "1,234"),
        (2.5, Unit.COUNT, "2.50"),
    ],
)
def test_a_value_is_printed_in_the_scale_a_person_reads(value, unit, printed):
    assert text(value, unit) == printed
    assert str(Quantity(value, unit)) == printed


def test_a_limit_keeps_its_unit_and_reason():
    @dataclass(frozen=True)
    class Limits:
        late_share: float = limit(0.5, Unit.SHARE, "Half.")

    (field,) = dataclasses.fields(Limits)
    assert Limits().late_share == 0.5
    assert field.metadata == {"unit": Unit.SHARE, "reason": "Half."}


def test_the_reason_of_a_limit_is_a_sentence():
    with pytest.raises(ValueError, match="is a sentence"):
        limit(0.5, Unit.SHARE, "half")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_no_quantity(value):
    with pytest.raises(ValueError, match="not a quantity"):
        Quantity(value, Unit.NS)
