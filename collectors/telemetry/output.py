"""The file that samples go to: whole lines, up to a size."""

from __future__ import annotations

import errno
import fcntl
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_RESERVED_BYTES = 1 << 10
"""Room for the last line, which says why the file ends."""


class Full(Exception):  # noqa: N818 - an event, not a mistake
    """The file has the size it may have."""


class Output:
    """A file that is only appended to.

    Each write is one call of the system, so that a kill leaves at most the last line cut.
    """

    def __init__(self, path: Path, most_bytes: int) -> None:
        """Open the file.

        Raises:
            BlockingIOError: another process writes to it.
            OSError: it cannot be opened.
        """
        self.path = path
        self.most_bytes = most_bytes
        self._open()

    def begin_again(self) -> None:
        """Keep what there is as `.old.jsonl`, in the place of what that was, and begin anew.

        Raises:
            OSError: the folder is gone, or the disk is full.
        """
        os.close(self._file)
        self.path.replace(self.path.with_suffix(".old.jsonl"))
        self._open()

    def _open(self) -> None:
        """Open, and begin a line where a kill cut the last one."""
        flags = os.O_APPEND | os.O_CREAT | os.O_RDWR | os.O_CLOEXEC
        self._file = os.open(self.path, flags, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise
        except OSError:
            pass  # a file system without locks; two processes would write each line twice
        self.size_bytes = os.fstat(self._file).st_size
        if self.size_bytes and os.pread(self._file, 1, self.size_bytes - 1) != b"\n":
            self.size_bytes += os.write(self._file, b"\n")

    def write(self, lines: bytes) -> None:
        """Append whole lines.

        Raises:
            Full: they would leave no room for the last line.
            OSError: the disk is full, or gone.
        """
        if self.size_bytes + len(lines) > self.most_bytes - _RESERVED_BYTES:
            raise Full
        n_bytes = os.write(self._file, lines)
        self.size_bytes += n_bytes
        if n_bytes < len(lines):
            raise OSError(errno.ENOSPC, "the disk is full")

    def write_last(self, line: bytes) -> None:
        """Append the line that room was reserved for.

        Raises:
            OSError: the disk is full, or gone.
        """
        self.size_bytes += os.write(self._file, line)

    def is_there(self) -> bool:
        """Whether the path still leads to the file.

        To a deleted file one can write until the disk is full, and nobody sees by what.
        """
        try:
            return os.path.samestat(self.path.stat(), os.fstat(self._file))
        except OSError:
            return False
