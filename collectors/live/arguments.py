"""What a user says of a recording, checked before the loop begins."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracekit.collectors.live.limits import Limits
from tracekit.collectors.telemetry.schedule import LEAST_EVERY_S
from tracekit.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the user says of this process; the rest, null here, is found."""

    rank: int | None
    world_size: int | None
    layout: Mapping[str, int] | None
    attempt: int | None


def given(
    rank: int | None,
    world_size: int | None,
    layout: Mapping[str, int] | None,
    attempt: int | None,
) -> Given:
    """Check what is said of this process.

    Raises:
        UsageError: a number is none, or too small.
    """
    if layout is not None and not isinstance(layout, Mapping):
        raise _refused("layout", layout, "sizes by name, such as {'tp': 4, 'dp': 8}")
    return Given(
        rank=_or_null("rank", rank, 0),
        world_size=_or_null("world_size", world_size, 1),
        layout=layout and {str(name): whole(f"layout of {name}", layout[name]) for name in layout},
        attempt=_or_null("attempt", attempt, 0),
    )


def whole(name: str, value: Any, least: int = 1) -> int:
    """A whole number of at least so much, of whatever type.

    Raises:
        UsageError: it is none.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise _refused(name, value, f"a whole number of at least {least}")
    return number


def folder(run_dir: Any) -> Path:
    """The folder, wherever the job changes to later.

    Raises:
        UsageError: it is no path.
    """
    try:
        path = Path(run_dir)
    except TypeError:
        raise _refused("run_dir", run_dir, "a path") from None
    with suppress(OSError):  # the current folder is gone: to write there will fail by itself
        path = path.absolute()
    return path


def period_s(every_s: Any) -> float | None:
    """Seconds between samples; null for no sampling.

    Raises:
        UsageError: it is no number of seconds, or too small.
    """
    if every_s is None:
        return None
    try:
        seconds = float(every_s)
    except (TypeError, ValueError):
        seconds = 0.0
    if not LEAST_EVERY_S <= seconds < math.inf:
        raise _refused("telemetry_every_s", every_s, f"seconds, at least {LEAST_EVERY_S}, or None")
    return seconds


def limits(value: Any) -> Limits:
    """The limits, by default those of tracekit.

    Raises:
        UsageError: it is something else.
    """
    if value is not None and not isinstance(value, Limits):
        raise _refused("limits", value, "tracekit.Limits(...)")
    return value or Limits()


def _or_null(name: str, value: Any, least: int) -> int | None:
    return None if value is None else whole(name, value, least)


def _refused(name: str, value: Any, wanted: str) -> UsageError:
    return UsageError(
        f"{name}={value!r}: must be {wanted}",
        hint='As in collect("runs/my-job", steps=5, wait=10, every=1000)',
    )
