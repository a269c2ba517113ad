"""Dumps of PyTorch's flight recorder: the last collectives of a rank, and how far each one got.

Pickles and JSON of all versions: what is there is read by its key, never by the version number.
Pickles come from strangers, so that they are read by an unpickler that makes containers, texts and
numbers only.

Format: torch/csrc/distributed/c10d/FlightRecorderDetail.hpp (2.13).
"""

from __future__ import annotations

import io
import json
import pickle
import re
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import polars as pl

import tracekit.schema
from tracekit.collectors import Collector, Options, Peek, RankFile
from tracekit.collectors.chrome_trace.heading import numbers
from tracekit.derive.kernel_kinds import operation_of
from tracekit.errors import InputError
from tracekit.schema import FLIGHT_GROUPS, FLIGHT_RECORDS
from tracekit.store import Capture, SourceIdentity, path_text, write_table

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_BYTES = 1 << 30
"""No dump is larger: a ring of 100,000 records with stacks takes a tenth."""
MAX_RANK = 1 << 20
HEAD_BYTES = 1 << 16
PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
KEYS = (b"pg_config", b"pg_status", b"profiling_name")
"""At least one of them stands near the start of any dump that holds something."""
WORLD = "default_pg"
"""What torch calls the group of all ranks."""
MS = 1_000_000
_RANK_AT_END = re.compile(r"(\d+)(?:\.(?:json|pkl|pickle|bin))?$")
_ENDS = re.compile(r"(\d+)\s*(->|<-)\s*(\d+)")


class _Restricted(pickle.Unpickler):
    """Makes no object of any class: a pickle cannot run code."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"names {module}.{name}: a dump holds plain values only")

    def persistent_load(self, pid: object) -> NoReturn:
        raise pickle.UnpicklingError(f"refers to an object outside of the file: {pid!r}")


def sniff(path: Path) -> bool:
    """Whether it is a pickle or JSON object with the keys of a dump near its start."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return False
    is_json = head.lstrip()[:1] == b"{" and b"traceEvents" not in head
    return (head.startswith(PICKLES) or is_json) and any(key in head for key in KEYS)


def peek(path: Path) -> Peek:
    """The rank by the end of the file's name (torch writes prefix + rank), and the world's size."""
    try:
        dump = _read(path)
    except InputError:
        return Peek(digest=_digest(path))
    named = _RANK_AT_END.search(path.name)
    # only the group of all ranks says how many they are; others differ by rank
    world = [g["members"] for g in _groups(dump).values() if g["description"] == WORLD]
    created = [value for entry in _entries(dump) if (value := _ns(entry.get("time_created_ns")))]
    return Peek(
        rank=int(named.group(1)) if named and int(named.group(1)) < MAX_RANK else None,
        world_size=len(world[0]) if world and world[0] else None,
        started_ns=min(created, default=None),
        digest=_digest(path),
    )


def convert(file: RankFile, folder: Path, options: Options) -> Capture:
    """Write the records and groups of one rank.

    Raises:
        InputError: the file is cut, or no dump.
    """
    dump = _read(file.path)
    groups, entries = _groups(dump), _entries(dump)
    records = pl.DataFrame(
        [_record(entry, groups, options.epoch_ns) for entry in entries],
        schema=FLIGHT_RECORDS.schema,
    ).sort("record_id", nulls_last=True)
    progress = pl.DataFrame(_progress(dump, groups, entries), schema=FLIGHT_GROUPS.schema)
    write_table(folder, FLIGHT_RECORDS.name, file.rank, records)
    write_table(folder, FLIGHT_GROUPS.name, file.rank, progress)
    stat = file.path.stat()
    return Capture(
        rank=file.rank,
        rank_source=file.rank_source,
        source=SourceIdentity(
            path=path_text(file.path), size_bytes=stat.st_size, modified_ns=stat.st_mtime_ns
        ),
        collector=COLLECTOR.id,
        code=code_version(),
        epoch_ns=options.epoch_ns,
        world_size=file.world_size,
        is_clock_base_known=True,
        n_events=len(entries),
        n_bytes=stat.st_size,
        n_rows={FLIGHT_RECORDS.name: records.height, FLIGHT_GROUPS.name: progress.height},
    )


def _read(path: Path) -> dict[str, Any]:
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


def _entries(dump: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = dump.get("entries") or []
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def _groups(dump: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Groups by name, with description and members."""
    listed = dump.get("pg_config")
    found = {}
    for name, facts in listed.items() if isinstance(listed, dict) else ():
        known = facts if isinstance(facts, dict) else {}
        members = numbers(known.get("ranks"), MAX_RANK)
        found[str(known.get("name", name))] = {
            "description": _text(known.get("desc")),
            "members": sorted(members) if members else None,
        }
    return found


def _progress(
    dump: Mapping[str, Any],
    groups: Mapping[str, dict[str, Any]],
    entries: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    """How far the rank got in each group.

    The status is kept by a number of the process, which the entries tie to the group's name; groups
    without an entry have none. That of gloo calls everything completed that was enqueued.
    """
    untold = {_group_of(entry)[0] for entry in entries if _follows_no_states(entry)}
    names = {str(entry.get("pg_id")): _group_of(entry)[0] for entry in entries}
    listed = dump.get("pg_status")
    status = {
        names[str(number)]: values
        for number, values in (listed.items() if isinstance(listed, dict) else ())
        if str(number) in names and isinstance(values, dict)
    }
    every = {**groups, **{name: groups.get(name, {}) for name in names.values()}}
    return [
        {
            "group": name,
            "group_description": facts.get("description"),
            "members": facts.get("members"),
            "last_enqueued": _sequence(status.get(name, {}).get("last_enqueued_collective")),
            "last_completed": None
            if name in untold
            else _sequence(status.get(name, {}).get("last_completed_collective")),
        }
        for name, facts in sorted(every.items())
    ]


def _record(
    entry: Mapping[str, Any], groups: Mapping[str, dict[str, Any]], epoch_ns: int
) -> dict[str, Any]:
    group, description = _group_of(entry)
    facts = groups.get(group, {})
    members = facts.get("members")
    name = _text(entry.get("profiling_name")) or ""
    ends = _ENDS.search(name)
    is_message = bool(entry.get("is_p2p")) or ends is not None
    sender, receiver = _message_ends(ends, members)
    timeout_ms = entry.get("timeout_ms")
    return {
        "record_id": _sequence(entry.get("record_id")),
        "group": group,
        "group_description": description or facts.get("description"),
        "members": members,
        "sequence": _sequence(
            entry.get("p2p_seq_id" if is_message else "collective_seq_id", entry.get("seq_id"))
        ),
        "operation": operation_of(name),
        "name": name,
        "is_message": is_message,
        "source_rank": sender,
        "destination_rank": receiver,
        "state": _text(entry.get("state")),
        "is_done": _is_done(entry),
        **{
            f"{column}_ns": None if (at := _ns(entry.get(key))) is None else at - epoch_ns
            for column, key in (
                ("created", "time_created_ns"),
                ("started", "time_discovered_started_ns"),
                ("completed", "time_discovered_completed_ns"),
            )
        },
        "timeout_ns": timeout_ms * MS if isinstance(timeout_ms, int) else None,
        "sizes_in": _listing(entry.get("input_sizes")),
        "sizes_out": _listing(entry.get("output_sizes")),
        "dtypes": _listing(entry.get("input_dtypes")),
        "stack": _stack(entry.get("frames")),
    }


def _is_done(entry: Mapping[str, Any]) -> bool | None:
    """Whether it ended; null where the backend does not follow states."""
    if entry.get("state") == "completed":
        return True
    return None if _follows_no_states(entry) else bool(entry.get("retired"))


def _follows_no_states(entry: Mapping[str, Any]) -> bool:
    """Whether it is one of gloo's, whose records are scheduled and retired from the start."""
    return str(entry.get("profiling_name")).startswith("gloo:")


def _group_of(entry: Mapping[str, Any]) -> tuple[str, str | None]:
    """Name and description of a record's group; the name alone in old versions."""
    group = entry.get("process_group", entry.get("pg_name", entry.get("pg_id", "")))
    if isinstance(group, list | tuple):
        parts = [*list(group), None, None]
        return str(parts[0]), _text(parts[1])
    return str(group), None


def _message_ends(
    ends: re.Match[str] | None, members: list[int] | None
) -> tuple[int | None, int | None]:
    """Global ranks of sender and receiver; the name of a message counts ranks within its group."""
    if ends is None or not members:
        return None, None
    one, other = int(ends.group(1)), int(ends.group(3))
    sender, receiver = (one, other) if ends.group(2) == "->" else (other, one)
    if max(sender, receiver) >= len(members):
        return None, None
    return members[sender], members[receiver]


def _stack(frames: object) -> str | None:
    """The call, innermost frame first, as in "train.py:41 step"."""
    if not isinstance(frames, list) or not frames:
        return None
    known = [frame for frame in frames if isinstance(frame, dict)]
    return "\n".join(f"{f.get('filename')}:{f.get('line')} {f.get('name')}" for f in known) or None


def _listing(value: object) -> str | None:
    return json.dumps(value, default=str) if value else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _ns(value: object) -> int | None:
    """A time; JSON writes 0 for "never"."""
    return value if isinstance(value, int) and 0 < value < 1 << 62 else None


def _sequence(value: object) -> int | None:
    """A sequence number, a text in JSON; null for -1, "none yet"."""
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _digest(path: Path) -> str:
    """Ranks that recorded nothing have equal dumps: the name tells them apart."""
    return sha256(path.name.encode() + b"\0" + path.read_bytes()).hexdigest()


@cache
def code_version() -> str:
    """What the rows rest on: this module and the tables."""
    digest = sha256()
    schema = Path(tracekit.schema.__file__)
    for module in (
        Path(__file__),
        schema.with_name("flight_records.py"),
        schema.with_name("flight_groups.py"),
    ):
        digest.update(module.read_bytes())
    return digest.hexdigest()


COLLECTOR = Collector(
    id="flight-recorder",
    title="Dumps of PyTorch's flight recorder (pickle or JSON)",
    produces=(FLIGHT_RECORDS, FLIGHT_GROUPS),
    sniff=sniff,
    peek=peek,
    convert=convert,
    code=code_version,
)
