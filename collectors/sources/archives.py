"""Archives of traces, unpacked within bounds: they come from strangers."""

from __future__ import annotations

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO

from tracekit.errors import InputError

MAX_MEMBERS = 100_000
MAX_UNPACKED_RATIO = 200
MIN_UNPACKED_BYTES = 64 << 20
ENDINGS = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")

Member = tuple[str, int, Callable[[], IO[bytes] | None]]
"""Name, unpacked size, and what opens it."""

_DAMAGED = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    OSError,
    EOFError,
    RuntimeError,  # zipfile: a password is needed
    NotImplementedError,  # zipfile: another compression
    ValueError,  # a name with a null byte
)


def is_archive(path: Path) -> bool:
    """Whether the file is an archive of files, by its name and content."""
    if not path.name.lower().endswith(ENDINGS):
        return False
    try:
        return zipfile.is_zipfile(path) or tarfile.is_tarfile(path)
    except _DAMAGED:
        return False


def unpacked_files(archive: Path, below: Path, notes: list[str]) -> list[Path]:
    """Unpack the regular files of an archive, sorted, to places below `below` only.

    What a damaged archive still gives is used; the rest is noted.

    Raises:
        InputError: the archive breaks the bounds, or a member lies outside of it.
    """
    target = (below / str(len(list(below.iterdir()))) / archive.name).resolve()
    limit_bytes = max(MIN_UNPACKED_BYTES, MAX_UNPACKED_RATIO * archive.stat().st_size)
    total_bytes = 0
    files: list[Path] = []
    try:
        for n_members, (name, size_bytes, opened) in enumerate(_members(archive), start=1):
            total_bytes += size_bytes
            if n_members > MAX_MEMBERS or total_bytes > limit_bytes:
                raise InputError(
                    f"{archive}: holds more than {MAX_MEMBERS} files or unpacks to more than "
                    f"{MAX_UNPACKED_RATIO} times its size",
                    hint="Unpack it yourself and give the folder.",
                )
            path = (target / name).resolve()
            if not path.is_relative_to(target) or path == target:
                raise InputError(f"{archive}: member {name!r} lies outside the archive")
            if not any(part.startswith((".", "__MACOSX")) for part in Path(name).parts):
                _unpack(opened, path)
                files.append(path)
    except _DAMAGED as error:
        notes.append(f"{archive}: damaged: {error}; {len(files)} files of it are used")
    return sorted(files)


def _members(archive: Path) -> Iterator[Member]:
    """The regular files of an archive."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            for entry in packed.infolist():
                if not entry.is_dir():
                    yield entry.filename, entry.file_size, partial(packed.open, entry)
        return
    with tarfile.open(archive) as packed_tar:
        for member in packed_tar:
            if member.isfile():
                yield member.name, member.size, partial(packed_tar.extractfile, member)


def _unpack(opened: Callable[[], IO[bytes] | None], path: Path) -> None:
    """Write one member; what could be read before a fault stays, as a cut file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    stream = opened()
    if stream is None:
        return
    with stream, path.open("wb") as out:
        while piece := stream.read(1 << 20):
            out.write(piece)
