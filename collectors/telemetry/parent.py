"""The process that another one was started for, and whether it still runs."""

from __future__ import annotations

import os
from pathlib import Path

from tracekit.collectors.telemetry.host_proc import stat_words

_STATE, _START = 0, 19
"""Fields of /proc/PID/stat, counted from the one after the name: proc(5)."""
_ENDED = ("Z", "X")
_PROC = Path("/proc")


class Parent:
    """A process, known by when it started: its number may belong to another one later."""

    def __init__(self, pid: int, proc: Path = _PROC) -> None:
        """Look at a process that may be gone already."""
        self._pid = pid
        self._proc = proc
        self._started = self._start()

    def is_gone(self) -> bool:
        """Whether it has ended, collected by its own parent or not."""
        return self._started is None or self._start() != self._started

    def _start(self) -> str | None:
        """When it started, in ticks since boot; null once it has ended."""
        if not (self._proc / "stat").exists():
            return self._known_by_signal()
        words = stat_words(self._proc, self._pid)
        return words[_START] if words and words[_STATE] not in _ENDED else None

    def _known_by_signal(self) -> str | None:
        """That it runs, where nothing says since when."""
        try:
            os.kill(self._pid, 0)
        except ProcessLookupError:
            return None
        except PermissionError:
            pass
        return "some time"
