"""Where each thread of Python was when a rank seemed to hang: RANK.stacks.txt beside its dump."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

STACKS = ".stacks.txt"
MAX_BYTES = 1 << 24
_THREAD = re.compile(r"^Thread (.*):$")
_FRAME = re.compile(r'^\s*File "(.*)", line (\d+), in (.*)$')


def stack_rows(dump: Path) -> list[dict[str, str]]:
    """Thread and stack of each thread, innermost frame first; none where nothing was written."""
    path = dump.with_suffix(STACKS)
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            lines = file.read(MAX_BYTES).splitlines()
    except OSError:
        return []
    frames: dict[str, list[str]] = {}
    thread = ""
    for line in lines:
        if named := _THREAD.match(line):
            thread = named[1]
        elif frame := _FRAME.match(line):
            frames.setdefault(thread, []).insert(0, f"{frame[1]}:{frame[2]} {frame[3]}")
    return [{"thread": name, "stack": "\n".join(stack)} for name, stack in frames.items()]
