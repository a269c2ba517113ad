"""When to sample: at multiples of a period since the start, so that being late never adds up."""

from __future__ import annotations

LEAST_EVERY_S = 0.01
"""The shortest period: a tick takes some ms."""


def next_tick(last: int, elapsed_ns: int, every_ns: int) -> int:
    """The first tick after the last one whose time has not passed; those between were missed.

    Args:
        last: The tick that is done; tick k is due k periods after the start.
        elapsed_ns: Time since the start.
        every_ns: The period.
    """
    return max(last + 1, -(-elapsed_ns // every_ns))
