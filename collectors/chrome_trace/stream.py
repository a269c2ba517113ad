"""Bytes of a plain or gzipped file in bounded pieces; a cut or damaged end loses only itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from isal import igzip_lib, isal_zlib

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PIECE_BYTES = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"
MAX_RATIO = 200
"""An archive may unpack to at most this many times its size: more is a decompression bomb."""
MIN_BOMB_BYTES = 1 << 30
MAX_EMPTY_MEMBERS = 1000


@dataclass(slots=True)
class Cut:
    """Why the bytes ended before the file's own end; empty when they did not."""

    why: str = ""


def pieces(path: Path, cut: Cut | None = None) -> Iterator[bytes]:
    """Yield the unpacked bytes of a file, about 1 MiB at a time.

    A truncated or corrupt gzip stream ends the iteration early and is noted in `cut`.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        first = file.read(PIECE_BYTES)
        if not first.startswith(GZIP_MAGIC):
            while first:
                yield first
                first = file.read(PIECE_BYTES)
            return
        yield from _unpacked(file, first, path.stat().st_size, cut or Cut())


def head(path: Path, n_bytes: int) -> bytes:
    """The first `n_bytes` of the unpacked file, fewer if it is shorter."""
    taken = b""
    for piece in pieces(path):
        taken += piece
        if len(taken) >= n_bytes:
            break
    return taken[:n_bytes]


def tail(path: Path, n_bytes: int) -> bytes:
    """The last `n_bytes` of the unpacked file; a gzipped one is unpacked for it."""
    with path.open("rb") as file:
        if file.read(2) != GZIP_MAGIC:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - n_bytes))
            return file.read()
    last = b""
    for piece in pieces(path):
        last = (last + piece)[-n_bytes:]
    return last


def _unpacked(file: BinaryIO, first: bytes, packed_bytes: int, cut: Cut) -> Iterator[bytes]:
    """Unpack one or more gzip members. Reads through a bounded window, whatever the ratio."""
    limit_bytes = max(MIN_BOMB_BYTES, MAX_RATIO * packed_bytes)
    unpacked_bytes = n_empty = 0
    member = isal_zlib.decompressobj(wbits=31)
    packed = first
    while packed:
        try:
            data = member.decompress(packed, PIECE_BYTES)
        except igzip_lib.IsalError as error:  # type: ignore[misc] # its stub calls it a value
            cut.why = f"gzip stream is corrupt: {error}"
            return
        unpacked_bytes += len(data)
        if unpacked_bytes > limit_bytes:
            cut.why = f"gzip stream unpacks to more than {MAX_RATIO} times its size"
            return
        if data:
            yield data
        if member.eof:
            n_empty = 0 if data else n_empty + 1
            if n_empty > MAX_EMPTY_MEMBERS:
                cut.why = "gzip stream holds nothing but empty parts"
                return
            packed = member.unused_data or file.read(PIECE_BYTES)
            packed = packed.lstrip(b"\0")
            if packed:
                member = isal_zlib.decompressobj(wbits=31)
        else:
            packed = member.unconsumed_tail or file.read(PIECE_BYTES)
    if not member.eof:
        cut.why = "gzip stream ends early"
