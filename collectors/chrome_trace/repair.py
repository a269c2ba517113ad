"""Mending damaged JSON so that at most the damaged event is lost, and counting what is lost.

The defects are those that Kineto's writer is known for: bad UTF-8, raw nan and inf, control
characters, unescaped quotes and backslashes in names, a file cut anywhere; and events whose fields
have other types than they should.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

BROKEN = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""What decoding raises where the JSON is damaged, of another shape, or nested without end."""

_NOT_A_NUMBER = re.compile(
    rb'((?<!\\)"\s*:\s*|[\[,]\s*)[-+]?(?:nan|inf|infinity)(?:\(ind\))?(?=\s*[,}\]])', re.IGNORECASE
)
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_BACKSLASH = re.compile(rb'(?<!\\)((?:\\\\)*)\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_SURROGATE = re.compile(
    rb"(?<!\\)((?:\\\\)*)(?:(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
_IN_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_LINE_BREAK = re.compile(rb"[\t\r\n]")
_LIST_END = re.compile(rb'\}[\s,]*(?=\]\s*(?:,\s*"|\}|$))')
_BETWEEN = re.compile(r"[,\s]*")
N_LIKELY_ENDS = 3
N_LONG_LOOKS = 64
SHORT_LOOK_BYTES = 64 << 10
_TEXTS = ("ph", "cat", "name")


@dataclass(frozen=True, slots=True)
class Salvage(Generic[T]):
    """Events that could be decoded, how many were lost, and how many bytes that took.

    Bytes beyond `n_used` may be the first half of an event; `is_mended` says that something had to
    be changed or left out.
    """

    events: list[T]
    n_lost: int
    n_used: int
    is_mended: bool


def salvaged(
    data: bytes, seams: list[int], decode: Callable[[bytes], list[T]], *, is_last: bool
) -> Salvage[T]:
    """Decode what can be decoded of `data`, whose events begin at 0 and at the seams.

    Fixes that lose nothing are tried on the whole first; then event by event. A seam may lie inside
    an event (text or a list that looks like one): the event that starts there is parsed to its own
    end, wherever that is. Unless the data are the last, what fails at their end is not used up.
    """
    try:
        return Salvage(decode(_listed(cleaned(data))), 0, len(data), is_mended=True)
    except BROKEN:
        pass
    text = data.decode("latin-1")  # one character a byte, so that places in both are the same
    ends = iter([*seams, len(data)])
    events: list[T] = []
    n_lost = n_tail = start = end = tail = 0
    is_mended = False
    reach = _Reach(N_LONG_LOOKS * len(data))
    while start < len(data):
        while end <= start:
            end = next(ends)
        event = _event(data, text, (start, end), decode, reach)
        if event.is_open and not is_last:
            return Salvage(events, n_lost + n_tail, start, is_mended or n_lost + n_tail > 0)
        start = event.end
        is_mended = is_mended or event.is_mended
        if event.found is not None:
            events += event.found
            n_lost += n_tail
            n_tail, tail = 0, start
        else:
            n_tail += 1
    if is_last:
        return Salvage(events, n_lost + n_tail, len(data), is_mended or n_lost + n_tail > 0)
    return Salvage(events, n_lost, tail, is_mended or n_lost > 0)


def cleaned(data: bytes) -> bytes:
    """Replace bad UTF-8, raw nan and inf (by null), control characters, stray backslashes.

    A surrogate without its other half is replaced, too.
    """
    text = data.decode("utf-8", errors="replace").encode()
    text = _NOT_A_NUMBER.sub(rb"\1null", text)
    text = _BACKSLASH.sub(rb"\1\\\\", _CONTROL.sub(b" ", text))
    if b"\\ud" in text or b"\\uD" in text:
        text = _SURROGATE.sub(lambda m: m[1] + (m[2] or rb"\ufffd"), text)
    return text


def likely_ends(text: bytes) -> list[int]:
    """Places where the list of events may end, each just after a brace, the likeliest first.

    One is the end if what stands before it decodes as a list: inside text or a list of an event
    something would be left open.
    """
    ends = (
        match.start() + 1
        for match in _LIST_END.finditer(text)
        if text.find(b'"ph"', match.end(), match.end() + 4096) < 0
    )
    return list(islice(ends, N_LIKELY_ENDS))


def list_end(text: bytes) -> int | None:
    """Where the list of events ends: just after the last event's brace; None if it does not.

    Undamaged events are parsed to the end of the list. Otherwise each place that may be it is
    checked: the rest must close the file's object (or be nothing, for a bare list).
    """
    try:
        _, end = json.JSONDecoder(strict=False).raw_decode("[" + text.decode("latin-1"))
        return len(text[: end - 2].rstrip())
    except (ValueError, RecursionError):
        pass
    loose = None
    for match in _LIST_END.finditer(text):
        if text.find(b'"ph"', match.end(), match.end() + 4096) >= 0:
            continue
        after = text[match.end() :].lstrip()[1:].strip(b"] \t\r\n")
        if after in (b"", b"}") or _is_rest(after):
            return match.end()
        if loose is None and after.endswith(b"}") and re.match(rb',\s*"[A-Za-z]', after):
            loose = match.end()
    return loose


@dataclass(frozen=True, slots=True)
class _Event(Generic[T]):
    """What one piece held (None if it is lost) and where the next begins.

    `is_mended`: it was changed or left out; `is_open`: it goes on behind the end of the data.
    """

    found: list[T] | None
    end: int
    is_mended: bool = False
    is_open: bool = False


@dataclass(slots=True)
class _Reach:
    """How many bytes may still be looked at behind the seams; a heap of rubble must end, too."""

    left_bytes: int

    def of(self, text: str, start: int, end: int) -> str:
        """The text from `start` on: all of it, or, when the bytes are used up, a little."""
        stop = len(text) if self.left_bytes > 0 else end + SHORT_LOOK_BYTES
        self.left_bytes -= len(text) - start
        return text[start:stop]


def _event(
    data: bytes,
    text: str,
    place: tuple[int, int],
    decode: Callable[[bytes], list[T]],
    reach: _Reach,
) -> _Event[T]:
    """The event that starts at the first place and, if no seam lies inside, ends at the second."""
    start, end = place
    piece = data[start:end]
    found = _decoded(piece, decode)
    if found is not None:
        return _Event(found, end)
    own_end = _own_end(text, start, end, reach)
    if own_end is None:
        return _Event(None, end, is_mended=True, is_open=True)
    own_piece = data[start:own_end]
    if own_end != end:
        found = _decoded(own_piece, decode)
    if found is None:
        clean = cleaned(own_piece)
        found = _decoded(_without_breaks(clean), decode)
        found = _coerced(clean, decode) if found is None else found
    after = _BETWEEN.match(text, own_end)
    return _Event(found, after.end() if after else own_end, is_mended=own_end <= end)


def _own_end(text: str, start: int, end: int, reach: _Reach) -> int | None:
    """Where the JSON value that starts at `start` ends; `end` if it is damaged, None if it is open.

    Only what the text up to `end` leaves open is looked for behind it: an error costs time in
    proportion to the text that is looked at.
    """
    for is_short in (True, False):
        piece = text[start:end].rstrip(", \t\r\n") if is_short else reach.of(text, start, end)
        try:
            return start + json.JSONDecoder(strict=False).raw_decode(piece)[1]
        except json.JSONDecodeError as error:
            is_open = error.pos >= len(piece.rstrip()) or error.msg.startswith("Unterminated")
            if not is_open:
                return end
        except (ValueError, RecursionError):
            return end
    return None if start + len(piece) >= len(text) else end


def _decoded(piece: bytes, decode: Callable[[bytes], list[T]]) -> list[T] | None:
    try:
        return decode(_listed(piece))
    except BROKEN:
        return None


def _coerced(piece: bytes, decode: Callable[[bytes], list[T]]) -> list[T] | None:
    """An event that is JSON but holds other types or numbers beyond a double: mended or null."""
    try:
        events = json.loads(_listed(piece), strict=False)
        return decode(cleaned(json.dumps([_with_types(event) for event in events]).encode()))
    except (*BROKEN, ValueError):
        return None


def _with_types(event: Any) -> Any:
    if not isinstance(event, dict):
        return event
    typed = {
        key: str(value) if key in _TEXTS else value
        for key, value in event.items()
        if value is not None
    }
    if not isinstance(typed.get("args", {}), dict):
        del typed["args"]
    return typed


def _listed(events: bytes) -> bytes:
    return b"[" + events.rstrip(b", \t\r\n") + b"]"


def _without_breaks(piece: bytes) -> bytes:
    """Line breaks and tabs inside strings as spaces."""
    return _IN_STRING.sub(lambda match: _LINE_BREAK.sub(b" ", match[0]), piece)


def _is_rest(after: bytes) -> bool:
    """Whether `, "key": value … }` is the rest of an object."""
    if not after.startswith(b","):
        return False
    try:
        json.loads(cleaned(b"{" + after[1:]), strict=False)
    except (ValueError, RecursionError):
        return False
    return True
