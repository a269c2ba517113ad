"""Files behind the paths a person gives: folders, globs, lists; and why a file is no trace."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.collectors.chrome_trace.stream import head
from tracekit.collectors.sources.archives import is_archive, unpacked_files
from tracekit.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

_DOWNLOADED = "an HTML page, not a trace: was a login or error page downloaded?"
_PICKLE = "a pickle (flight recorder dump or memory snapshot)"
_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself: run 'git lfs pull'"),
    (b"<!doctype html", _DOWNLOADED),
    (b"<html", _DOWNLOADED),
    (b"sqlite format 3", "an SQLite database (rocpd, or another tool's)"),
    (b"\x80\x02", _PICKLE),
    (b"\x80\x03", _PICKLE),
    (b"\x80\x04", _PICKLE),
    (b"\x80\x05", _PICKLE),
)


def expanded(sources: Sequence[str | Path], unpacked: Path) -> tuple[list[Path], tuple[str, ...]]:
    """All files behind the sources, each folder's sorted, and notes on what could not be read.

    Archives are unpacked below `unpacked`.

    Raises:
        InputError: a path or pattern names nothing, or an archive breaks the bounds.
    """
    files: dict[Path, None] = {}
    notes: list[str] = []
    for source in sources:
        for path in _named(source):
            for file in _below(path, notes) if path.is_dir() else [path]:
                inner = unpacked_files(file, unpacked, notes) if is_archive(file) else [file]
                files.update(dict.fromkeys(inner))
    return list(files), tuple(notes)


def why_no_trace(path: Path) -> str:
    """What a file is that no collector reads, in a few words."""
    if not path.is_file():
        return "not a regular file"
    try:
        first = head(path, 4096)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if not first.strip():
        return "empty"
    lower = first.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    for magic, meaning in _MAGIC:
        if lower.startswith(magic):
            return meaning
    if lower.startswith((b"{", b"[")):
        return "JSON, but no trace of a profiler"
    return "not a trace of a profiler"


def _named(source: str | Path) -> list[Path]:
    try:
        if Path(source).exists():
            return [Path(source)]
        matches = sorted(glob.glob(str(source), recursive=True))  # noqa: PTH207 - absolute ones too
    except (OSError, ValueError) as error:  # a name too long, or with a null byte
        raise InputError(f"{str(source)[:80]!r}: no path: {error}") from error
    if not matches:
        raise InputError(
            f"{source}: no such file or folder",
            hint="Give a folder of traces, a file, a glob in quotes, or an archive.",
        )
    return [Path(match) for match in matches]


def _below(folder: Path, notes: list[str]) -> list[Path]:
    """Files below a folder, without hidden ones, run folders and what tracekit wrote itself.

    A folder that links back to one above it is entered once.
    """

    def note(error: OSError) -> None:
        notes.append(f"{error.filename}: cannot be read: {error.strerror}")

    found: list[Path] = []
    entered = {folder.resolve()}
    for place, subfolders, names in os.walk(folder, onerror=note, followlinks=True):
        here = Path(place)
        kept = []
        for name in sorted(subfolders):
            inner = here / name
            if not name.startswith(".") and not _is_ours(inner) and inner.resolve() not in entered:
                entered.add(inner.resolve())
                kept.append(name)
        subfolders[:] = kept
        files = (here / name for name in sorted(names) if not name.startswith("."))
        found += [file for file in files if file.is_file()]
    return found


def _is_ours(folder: Path) -> bool:
    """Whether a folder is a run, or the output of an analysis."""
    is_run = (folder / "manifest.json").is_file() and (folder / "captures").is_dir()
    return is_run or ((folder / "result.json").is_file() and (folder / "run").is_dir())
