"""How hosts find the reference without torch: a file in a run folder that they share.

`clocks/server.json` says where the reference listens, for as long as it does. A reference that was
killed leaves it behind; the next one writes its own over it.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tracekit.collectors.clocks.ping import TOKEN_BYTES

if TYPE_CHECKING:
    from pathlib import Path

NAME = "server.json"
MAX_FILE_BYTES = 1 << 16
"""A few hundred are used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The host whose clock the others are compared with, and where it listens."""

    host: str
    addresses: tuple[str, ...]
    port: int
    token: str


def folder_of(run: Path) -> Path:
    """The folder of the clocks in a run folder, made where it is missing."""
    folder = run / "clocks"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def publish(folder: Path, reference: Reference) -> None:
    """Write the file for this user alone, whole from the moment that it is there."""
    temporary = folder / f".{NAME}.{os.getpid()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - opened with a mode
        json.dump(asdict(reference), file)
    temporary.replace(folder / NAME)


def withdraw(folder: Path, reference: Reference) -> None:
    """Remove the file, unless another reference has put its own there."""
    with suppress(OSError, ValueError):
        if published(folder) == reference:
            (folder / NAME).unlink()


def published(folder: Path) -> Reference:
    """What the file says.

    Raises:
        FileNotFoundError: no reference has written one yet.
        ValueError: it is not what `publish` writes.
    """
    with (folder / NAME).open("rb") as file:
        said = json.loads(file.read(MAX_FILE_BYTES))
    try:
        reference = Reference(**{**said, "addresses": tuple(said["addresses"])})
        sound = len(reference.token.encode()) == TOKEN_BYTES and 0 < reference.port < 1 << 16
    except (TypeError, KeyError, AttributeError):
        sound = False
    if not sound:
        raise ValueError("it names no reference")
    return reference
