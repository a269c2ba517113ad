"""Dumps of PyTorch's flight recorder: the last collectives of a rank, and how far each one got.

Pickles and JSON of all versions; beside one that `tracekit.collect` wrote on a hang lies where each
thread of Python was then. Dumps join the run of the traces that they lie beside.
"""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha256
from pathlib import Path

import polars as pl

import tracekit.schema
from tracekit.collectors import Beside, Collector, Options, Peek, RankFile
from tracekit.collectors.flight_dumps.reading import (
    MAX_RANK,
    PICKLES,
    entries_of,
    groups_of,
    read_dump,
)
from tracekit.collectors.flight_dumps.rows import progress_rows, record_row
from tracekit.collectors.flight_dumps.stacks import STACKS, stack_rows
from tracekit.collectors.flight_dumps.values import unix_ns
from tracekit.collectors.sources import redaction
from tracekit.errors import InputError
from tracekit.schema import FLIGHT_GROUPS, FLIGHT_RECORDS, FLIGHT_STACKS
from tracekit.store import Capture, SourceIdentity, path_text, write_table

HEAD_BYTES = 1 << 16
KEYS = (b"pg_config", b"pg_status", b"profiling_name")
"""At least one of them stands near the start of any dump that holds something."""
WORLD = "default_pg"
"""What torch calls the group of all ranks."""
TABLES = (FLIGHT_RECORDS, FLIGHT_GROUPS, FLIGHT_STACKS)
_RANK_AT_END = re.compile(r"(\d+)(?:\.(?:json|pkl|pickle|bin))?$")


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
    """The rank by the end of the file's name (torch writes prefix + rank), and the world's size.

    Of two dumps of a rank the one with the later call counts, then the one with stacks.
    """
    try:
        dump = read_dump(path)
    except InputError:
        return Peek(digest=_digest(path))
    named = _RANK_AT_END.search(path.name)
    # only the group of all ranks says how many they are; others differ by rank
    world = [g["members"] for g in groups_of(dump).values() if g["description"] == WORLD]
    entries = entries_of(dump)
    created = [at for entry in entries if (at := unix_ns(entry.get("time_created_ns")))]
    return Peek(
        rank=int(named.group(1)) if named and int(named.group(1)) < MAX_RANK else None,
        world_size=len(world[0]) if world and world[0] else None,
        started_ns=min(created, default=None),
        digest=_digest(path),
        snapshot=(max(created, default=0), sum(bool(entry.get("frames")) for entry in entries)),
    )


def convert(file: RankFile, folder: Path, options: Options) -> Capture:
    """Write the records and groups of one rank.

    Raises:
        InputError: the file is cut, or no dump.
    """
    n_rows = _written(file, folder, options)
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
        n_events=n_rows[FLIGHT_RECORDS.name],
        n_bytes=stat.st_size,
        n_rows=n_rows,
    )


def beside(file: RankFile, folder: Path, options: Options) -> Beside:
    """Add the records and groups of a rank to the tables of its trace.

    Raises:
        InputError: the file is cut, or no dump.
    """
    n_rows = _written(file, folder, options)
    return Beside(host=None, n_rows=n_rows, versions={}, environment={}, quality=())


def _written(file: RankFile, folder: Path, options: Options) -> dict[str, int]:
    """Write the tables of one rank; how many rows each one has."""
    dump = read_dump(file.path)
    groups, entries = groups_of(dump), entries_of(dump)
    records = [record_row(entry, groups, options.epoch_ns) for entry in entries]
    progress = progress_rows(dump, groups, entries)
    written_ns = file.path.stat().st_mtime_ns - options.epoch_ns
    frames = {
        FLIGHT_RECORDS: pl.DataFrame(records, schema=FLIGHT_RECORDS.schema).sort(
            "record_id", nulls_last=True
        ),
        FLIGHT_GROUPS: pl.DataFrame(
            [{**row, "written_ns": written_ns} for row in progress], schema=FLIGHT_GROUPS.schema
        ),
        FLIGHT_STACKS: pl.DataFrame(stack_rows(file.path), schema=FLIGHT_STACKS.schema),
    }
    n_rows = {}
    for table, rows in frames.items():
        kept = redaction.redacted(table.name, rows) if options.is_redacted else rows
        write_table(folder, table.name, file.rank, kept)
        n_rows[table.name] = kept.height
    return n_rows


def _is_part(path: Path) -> bool:
    """Whether it says where the threads were when a dump beside it was written."""
    stem = path.name.removesuffix(STACKS)
    dumps = (path.with_name(stem + suffix) for suffix in ("", ".json", ".pickle"))
    return stem != path.name and any(map(Path.is_file, dumps))


def _digest(path: Path) -> str:
    """Ranks that recorded nothing have equal dumps: the name tells them apart."""
    return sha256(path.name.encode() + b"\0" + path.read_bytes()).hexdigest()


@cache
def code_version() -> str:
    """What the rows rest on: this module, its parts and the tables."""
    digest = sha256()
    here, schema = Path(__file__), Path(tracekit.schema.__file__)
    modules = [here, *sorted(here.with_name("flight_dumps").glob("*.py"))]
    for module in (*modules, *(schema.with_name(f"{table.name}.py") for table in TABLES)):
        digest.update(module.read_bytes())
    return digest.hexdigest()


COLLECTOR = Collector(
    id="flight-recorder",
    title="Dumps of PyTorch's flight recorder (pickle or JSON)",
    produces=TABLES,
    sniff=sniff,
    peek=peek,
    convert=convert,
    code=code_version,
    beside=beside,
    is_joined_whole=True,
    is_part=_is_part,
)
