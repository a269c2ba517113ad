"""Single values of JSON that a stranger may have written: what is no such value is null."""

from __future__ import annotations

from typing import Any

LARGEST = 1 << 62


def count(value: object) -> int | None:
    """A number of something, from 0 on."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 <= value < LARGEST else None  # type: ignore[operator,return-value]


def mapping(value: object) -> dict[str, Any]:
    """An object of JSON; an empty one in place of anything else."""
    return value if isinstance(value, dict) else {}


def listing(value: object) -> list[Any]:
    """A list of JSON; an empty one in place of anything else."""
    return value if isinstance(value, list) else []
