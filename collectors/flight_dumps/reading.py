"""A dump as plain containers, whatever version wrote it, and its parts.

Pickles come from strangers, so that they are read by an unpickler that makes containers, texts and
numbers only.

Format: torch/csrc/distributed/c10d/FlightRecorderDetail.hpp (2.13).
"""

from __future__ import annotations

import io
import json
import pickle
from typing import TYPE_CHECKING, Any, NoReturn

from tracekit.collectors.chrome_trace.heading import numbers
from tracekit.collectors.flight_dumps.values import text_or_none
from tracekit.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAX_BYTES = 1 << 30
"""No dump is larger: a ring of 100,000 records with stacks takes a tenth."""
MAX_RANK = 1 << 20
PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")


class _Restricted(pickle.Unpickler):
    """Makes no object of any class: a pickle cannot run code."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"names {module}.{name}: a dump holds plain values only")

    def persistent_load(self, pid: object) -> NoReturn:
        raise pickle.UnpicklingError(f"refers to an object outside of the file: {pid!r}")


def read_dump(path: Path) -> dict[str, Any]:
    """The dump as plain containers; version 1 is a list of entries.

    Raises:
        InputError: it is neither, or holds more than plain values.
    """
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise InputError(f"{path}: {size:,} bytes: larger than any dump of a flight recorder")
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        is_pickle = data.startswith(PICKLES)
        dump = _Restricted(io.BytesIO(data)).load() if is_pickle else json.loads(data)
    except Exception as error:  # a cut or hostile pickle raises anything
        raise InputError(
            f"{path}: no whole dump of a flight recorder: {error}",
            hint="A rank that was killed while it wrote leaves a part. Leave the file out.",
        ) from error
    if isinstance(dump, list):
        return {"entries": dump}
    if not isinstance(dump, dict):
        raise InputError(f"{path}: no dump of a flight recorder: a {type(dump).__name__}")
    return dump


def entries_of(dump: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The records, oldest first."""
    found = dump.get("entries") or []
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def groups_of(dump: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Groups by name, with description and members."""
    listed = dump.get("pg_config")
    found = {}
    for name, facts in listed.items() if isinstance(listed, dict) else ():
        known = facts if isinstance(facts, dict) else {}
        members = numbers(known.get("ranks"), MAX_RANK)
        found[str(known.get("name", name))] = {
            "description": text_or_none(known.get("desc")),
            "members": sorted(members) if members else None,
        }
    return found
