"""Single values of a dump, which a stranger may have written: what is no such value is null."""

from __future__ import annotations


def text_or_none(value: object) -> str | None:
    """A text that says something."""
    return value if isinstance(value, str) and value else None


def unix_ns(value: object) -> int | None:
    """A time; JSON writes 0 for "never"."""
    return value if isinstance(value, int) and 0 < value < 1 << 62 else None


def sequence_or_none(value: object) -> int | None:
    """A sequence number, a text in JSON; null for -1, "none yet"."""
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
