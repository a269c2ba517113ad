"""Files behind the paths a person gives: folders, globs, lists, archives; and why a file is no trace."""

from __future__ import annotations

import glob
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.collectors.chrome_trace.stream import head
from tracekit.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_MEMBERS = 100_000
MAX_UNPACKED_RATIO = 200
MIN_UNPACKED_BYTES = 64 << 20
ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself: run 'git lfs pull'"),
    (b"<!doctype html", "an HTML page, not a trace: was a login or error page downloaded?"),
    (b"<html", "an HTML page, not a trace: was a login or error page downloaded?"),
    (b"sqlite format 3", "an SQLite database (Nsight Systems or rocpd export)"),
    (b"par1", "a Parquet file"),
    (b"\x80\x02", "a pickle (flight recorder dump or memory snapshot)"),
    (b"\x80\x03", "a pickle (flight recorder dump or memory snapshot)"),
    (b"\x80\x04", "a pickle (flight recorder dump or memory snapshot)"),
    (b"\x80\x05", "a pickle (flight recorder dump or memory snapshot)"),
)


def expanded(sources: Sequence[str | Path], unpacked: Path) -> list[Path]:
    """All files behind the sources, sorted; archives are unpacked below `unpacked`.

    Raises:
        InputError: a path or pattern names nothing, or an archive breaks the bounds.
    """
    files: dict[Path, None] = {}
    for source in sources:
        for path in _named(source):
            found = _below(path) if path.is_dir() else [path]
            for file in found:
                inner = _archive_files(file, unpacked) if is_archive(file) else [file]
                files.update(dict.fromkeys(inner))
    return list(files)


def is_archive(path: Path) -> bool:
    """Whether the file is an archive of files, by its name and content."""
    if not path.name.lower().endswith(ARCHIVES):
        return False
    return zipfile.is_zipfile(path) or tarfile.is_tarfile(path)


def why_no_trace(path: Path) -> str:
    """What a file is that no collector reads, in a few words."""
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
    path = Path(source)
    if path.exists():
        return [path]
    matches = sorted(glob.glob(str(source), recursive=True))  # noqa: PTH207 - absolute patterns too
    if not matches:
        raise InputError(
            f"{source}: no such file or folder",
            hint="Give a folder of traces, a file, a glob in quotes, or an archive.",
        )
    return [Path(match) for match in matches]


def _below(folder: Path) -> list[Path]:
    """Files below a folder, without hidden ones, run folders and what tracekit wrote itself."""
    found: list[Path] = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or (path.is_symlink() and not path.exists()):
            continue
        if path.is_dir():
            if not (path / "manifest.json").is_file() and not (path / "result.json").is_file():
                found += _below(path)
        elif path.is_file():
            found.append(path)
    return found


def _archive_files(archive: Path, unpacked: Path) -> list[Path]:
    """Unpack the regular files of an archive, within bounds, to places below `unpacked` only."""
    target = unpacked / archive.name
    limit_bytes = max(MIN_UNPACKED_BYTES, MAX_UNPACKED_RATIO * archive.stat().st_size)
    total_bytes = 0
    files = []
    for n_members, (name, size_bytes, read) in enumerate(_members(archive), start=1):
        total_bytes += size_bytes
        if n_members > MAX_MEMBERS or total_bytes > limit_bytes:
            raise InputError(
                f"{archive}: holds more than {MAX_MEMBERS} files or unpacks to more than "
                f"{MAX_UNPACKED_RATIO} times its size",
                hint="Unpack it yourself and give the folder.",
            )
        path = (target / name).resolve()
        if not path.is_relative_to(target.resolve()):
            raise InputError(f"{archive}: member {name!r} lies outside the archive")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as out:
            for piece in read():
                out.write(piece)
        files.append(path)
    return sorted(files)


def _members(archive: Path) -> Iterator[tuple[str, int, object]]:
    """Name, size and a reader of each regular file in an archive."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            for entry in packed.infolist():
                if not entry.is_dir():
                    yield entry.filename, entry.file_size, lambda e=entry: _pieces(packed.open(e))
        return
    with tarfile.open(archive) as packed_tar:
        for member in packed_tar:
            if member.isfile():
                yield member.name, member.size, lambda m=member: _pieces(packed_tar.extractfile(m))


def _pieces(stream: object) -> Iterator[bytes]:
    while piece := stream.read(1 << 20):  # type: ignore[attr-defined]
        yield piece
