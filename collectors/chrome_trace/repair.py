"""Mending damaged JSON so that at most the damaged event is lost, and counting what is lost.

The defects are those of COLLECTING facts on Kineto's writer: bad UTF-8, raw nan and inf, control
characters, unescaped quotes and backslashes in names, a file cut anywhere.
"""

from __future__ import annotations

import itertools
import json
import re
from typing import TYPE_CHECKING, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_NOT_A_NUMBER = re.compile(
    rb"(?<=[:\[,\s])[-+]?(?:nan|inf|infinity)(?:\(ind\))?(?=\s*[,}\]])", re.IGNORECASE
)
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_LIST_END = re.compile(rb'\}\s*(?=\]\s*(?:,\s*"|\}|$))')
_BACKSLASH = re.compile(rb'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_MAX_MERGED = 4


def split(data: bytes, boundary: re.Pattern[bytes]) -> list[bytes]:
    """Cut a run of events at every place that looks like the seam between two."""
    cuts = [0, *(match.end() for match in boundary.finditer(data)), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(cuts) if b > a]


def salvaged(
    data: bytes, pieces: list[bytes], decode: Callable[[bytes], list[T]]
) -> tuple[list[T], int]:
    """Decode what can be decoded of `data`; returns the events and how many were lost.

    Fixes that lose nothing are tried on the whole first; then event by event, where a piece that
    fails may be half of an event whose text looks like a seam, so a few pieces are tried together.
    """
    try:
        return decode(b"[" + cleaned(data).rstrip(b", \t\r\n") + b"]"), 0
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass
    events: list[T] = []
    n_lost = 0
    index = 0
    while index < len(pieces):
        for n_merged in range(1, _MAX_MERGED + 1):
            found = _one(b",".join(pieces[index : index + n_merged]), decode)
            if found is not None:
                events += found
                index += n_merged
                break
        else:
            n_lost += 1
            index += 1
    return events, n_lost


def cleaned(data: bytes) -> bytes:
    """Replace bad UTF-8, raw nan and inf (by null), control characters and stray backslashes."""
    text = data.decode("utf-8", errors="replace").encode()
    return _BACKSLASH.sub(rb"\\\\", _CONTROL.sub(b" ", _NOT_A_NUMBER.sub(b"null", text)))


def list_end(text: bytes) -> int | None:
    """Where the list of events ends: just after the last event's brace; None if it does not.

    A `}` before `]` also ends lists inside what follows the events, so each candidate is checked:
    the rest must close the file's object (or be nothing, for a bare list).
    """
    for match in _LIST_END.finditer(text):
        rest = text[match.end() :].lstrip(b"] \t\r\n")
        if not rest:
            return match.end()
        after = text[match.end() :].lstrip()[1:]
        if _closes(after):
            return match.end()
    return None


def _closes(after: bytes) -> bool:
    """Whether `, "key": value … }` is the rest of an object, tolerating metadata that is not JSON."""
    body = after.strip()
    if body == b"}":
        return True
    if not body.startswith(b",") or b'"ph"' in body[:4096]:
        return False
    try:
        json.loads(cleaned(b"{" + body[1:]), strict=False)
    except ValueError:
        return body.endswith(b"}") and re.match(rb',\s*"[A-Za-z]', body) is not None
    return True


def _one(piece: bytes, decode: Callable[[bytes], list[T]]) -> list[T] | None:
    try:
        return decode(b"[" + piece + b"]")
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass
    try:
        return decode(b"[" + cleaned(piece) + b"]")
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
