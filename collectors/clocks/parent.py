"""Whether the process that another one was started for still runs."""

from __future__ import annotations

from pathlib import Path

STATE, START = 0, 19
"""Fields of /proc/PID/stat, counted from the one after the name: proc(5)."""
ENDED = ("Z", "X")


class Parent:
    """A process, known by when it started: its number may belong to another one later."""

    def __init__(self, pid: int) -> None:
        """Look at a process that may be gone already."""
        self._stat = Path(f"/proc/{pid}/stat")
        self._started = self._start()

    def is_gone(self) -> bool:
        """Whether it has ended, collected by its own parent or not."""
        return self._started is None or self._start() != self._started

    def _start(self) -> str | None:
        """When it started, in ticks since boot; null once it has ended."""
        try:
            fields = self._stat.read_text("ascii", "replace").rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[STATE] in ENDED else fields[START]
