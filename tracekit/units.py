"""Quantities: a number and its unit are inseparable, and there is one way to print them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Unit(StrEnum):
    """Every unit a quantity may have. Shares are fractions in [0, 1], percent only on screen."""

    NS = "ns"
    SHARE = "share"
    COUNT = "count"
    BYTES = "bytes"
    BYTES_PER_S = "bytes/s"
    RATIO = "ratio"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Quantity:
    """A value with its unit. It is finite: JSON has no other numbers.

    Raises:
        ValueError: the value is infinite or not a number.
    """

    value: float
    unit: Unit

    def __post_init__(self) -> None:
        """Refuse what no one can act on."""
        if not math.isfinite(self.value):
            raise ValueError(f"not a quantity: {self.value} {self.unit}")

    def __str__(self) -> str:
        """Text for people, as in "1.23 ms" or "4.5 %"."""
        return text(self.value, self.unit)


def limit(default: float, unit: Unit, reason: str) -> Any:
    """Declare one field of a detector's `Limits`: default, unit, and why this value."""
    if not reason.endswith("."):
        raise ValueError(f"the reason of a limit is a sentence: {reason!r}")
    return field(default=default, metadata={"unit": unit, "reason": reason})


def text(value: float, unit: Unit | str) -> str:
    """Print a value in the scale a person reads: 1.23 ms, 4.5 %, 12.0 GB (10⁹), 1,234."""
    match unit:
        case Unit.NS:
            return _scaled(value, (("s", 1e9), ("ms", 1e6), ("µs", 1e3)), "ns")
        case Unit.BYTES:
            return _scaled(value, (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)), "B")
        case Unit.BYTES_PER_S:
            return _scaled(value, (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)), "B/s")
        case Unit.SHARE:
            return f"{100 * value:.1f} %"
        case Unit.RATIO:
            return f"{value:.2f}×"
        case _:
            is_whole = float(value).is_integer() or abs(value) >= 100
            return f"{value:,.0f}" if is_whole else f"{value:,.2f}"


def _scaled(value: float, scales: tuple[tuple[str, float], ...], base: str) -> str:
    for name, size in scales:
        if abs(value) >= size:
            scaled = value / size
            return f"{scaled:.3g} {name}" if abs(scaled) < 1000 else f"{scaled:,.0f} {name}"
    return f"{value:.3g} {base}"
