"""Answers of NCCL's RAS as JSON (NCCL ≥ 2.28.7): how many calls each rank has made, who is silent.

    ncclras -v -f json >> ras.json      # or "set format json", "verbose status" to port 28028

A file holds all ranks, and may hold several answers, one after the other. The largest communicator
numbers the ranks; a process is known in others by its host, process id and device.

Format: src/ras/client_support.cc of NVIDIA/nccl.
"""

from __future__ import annotations

import json
import re
from functools import cache, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

import tracekit.schema
from tracekit.collectors import Beside, Collector, Options, Peek, RankFile
from tracekit.collectors._json_values import count, listing, mapping
from tracekit.derive.kernel_kinds import operation_of
from tracekit.errors import InputError
from tracekit.schema import COMMUNICATOR_COUNTS
from tracekit.store import Capture, SourceIdentity, path_text, write_table

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD_BYTES = 1 << 16
MAX_BYTES = 1 << 30
MAX_RANKS = 1 << 20
_KEYS = (b'"nccl_version"', b'"communicators"')
_BEGINS = re.compile(r"^\s*\{", re.MULTILINE)
Process = tuple[object, object, object]


def sniff(path: Path) -> bool:
    """Whether an answer of RAS is near the start: ncclras writes a line or two before it."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return False
    return all(key in head for key in _KEYS) and b"{" in head and b"traceEvents" not in head


def peek(path: Path) -> Peek:
    """All ranks of the largest communicator, silent ones too."""
    stat = path.stat()
    digest = sha256(f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()
    try:
        ranks, size = _numbered(_answers(path, stat.st_mtime_ns))
    except InputError:
        return Peek(digest=digest)
    return Peek(ranks=tuple(sorted({*ranks.values()})), world_size=size, digest=digest)


def convert(file: RankFile, folder: Path, options: Options) -> Capture:
    """Write what RAS says of one rank.

    Raises:
        InputError: the file holds no whole answer.
    """
    told = beside(file, folder, options)
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
        host=told.host,
        world_size=file.world_size,
        is_clock_base_known=False,
        n_events=sum(told.n_rows.values()),
        n_bytes=stat.st_size,
        n_rows=told.n_rows,
        versions=told.versions,
    )


def beside(file: RankFile, folder: Path, _options: Options) -> Beside:
    """Add what RAS says of a rank to the tables of its trace.

    Raises:
        InputError: the file holds no whole answer.
    """
    answers = _answers(file.path, file.path.stat().st_mtime_ns)
    ranks, _ = _numbered(answers)
    rows, host = [], None
    for number, answer in enumerate(answers):
        for group, member, is_silent in _members(answer):
            if ranks.get(_process(member)) == file.rank:
                rows += _rows(number, answer, group, member, is_silent=is_silent)
                host = str(member.get("host") or "") or host
    frame = pl.DataFrame(rows, schema=COMMUNICATOR_COUNTS.schema)
    write_table(folder, COMMUNICATOR_COUNTS.name, file.rank, frame)
    version = answers[-1].get("nccl_version")
    return Beside(
        host=host,
        n_rows={COMMUNICATOR_COUNTS.name: frame.height},
        versions={"nccl": version} if isinstance(version, str) else {},
        environment={},
        quality=(),
    )


@lru_cache(maxsize=2)
def _answers(path: Path, _modified_ns: int) -> tuple[dict[str, Any], ...]:
    """The answers in a file, in order; what stands between them is passed over.

    Raises:
        InputError: there is no whole one.
    """
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise InputError(f"{path}: {size:,} bytes: larger than any answers of NCCL's RAS")
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    found = [a for a in _objects(text) if listing(mapping(a).get("communicators"))]
    if not found:
        raise InputError(
            f"{path}: no whole answer of NCCL's RAS in it",
            hint="Ask for one that names all ranks: ncclras -v -f json",
        )
    return tuple(found)


def _objects(text: str) -> Iterator[Any]:
    """Whole JSON objects that begin at the start of a line."""
    decoder, at = json.JSONDecoder(), 0
    while begins := _BEGINS.search(text, at):
        try:
            value, at = decoder.raw_decode(text, begins.end() - 1)
        except (ValueError, RecursionError):
            at = begins.end()  # cut
        else:
            yield value


def _numbered(answers: tuple[dict[str, Any], ...]) -> tuple[dict[Process, int], int]:
    """The rank of each process, and how many there are: by the largest communicator."""
    groups = [mapping(g) for answer in answers for g in listing(answer.get("communicators"))]
    largest = max(groups, key=lambda group: count(group.get("size")) or 0)
    key = largest.get("hash")
    ranks: dict[Process, int] = {}
    for answer in answers:
        for group, member, _ in _members(answer):
            if group.get("hash") == key:
                ranks[_process(member)] = member["rank"]
    return ranks, count(largest.get("size")) or len(ranks)


def _members(answer: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any], bool]]:
    """Communicator, member, and whether it did not answer."""
    for each in listing(answer.get("communicators")):
        group = mapping(each)
        for name, is_silent in (("ranks", False), ("missing_ranks", True)):
            for member in map(mapping, listing(group.get(name))):
                rank = count(member.get("rank"))
                if rank is not None and rank < MAX_RANKS:
                    yield group, member, is_silent


def _process(member: dict[str, Any]) -> Process:
    return str(member.get("host")), count(member.get("pid")), count(member.get("cuda_dev"))


def _rows(
    number: int,
    answer: dict[str, Any],
    group: dict[str, Any],
    member: dict[str, Any],
    *,
    is_silent: bool,
) -> list[dict[str, Any]]:
    """A row an operation; one without for a member that did not answer."""
    status = mapping(member.get("status"))
    counts = {
        operation_of(name) or name: count(calls)
        for name, calls in mapping(member.get("collective_counts")).items()
    }
    shared = {
        "snapshot": number,
        "taken": str(answer.get("timestamp") or "") or None,
        "communicator": str(group.get("hash"))[:32],
        "n_members": count(group.get("size")),
        "member": member["rank"],
        "is_silent": is_silent,
        "is_dead": status.get("considered_dead") is True,
        "is_aborted": status.get("abort_flag") is True,
        "error": count(status.get("async_error")) or 0,
    }
    if is_silent or not counts:
        return [shared | {"operation": None, "n_calls": None}]
    return [shared | {"operation": name, "n_calls": n} for name, n in counts.items()]


@cache
def code_version() -> str:
    """What the rows rest on: this module and the table."""
    digest = sha256()
    schema = Path(tracekit.schema.__file__)
    for module in (Path(__file__), schema.with_name("communicator_counts.py")):
        digest.update(module.read_bytes())
    return digest.hexdigest()


COLLECTOR = Collector(
    id="nccl-ras",
    title="Answers of NCCL's RAS (ncclras, JSON)",
    produces=(COMMUNICATOR_COUNTS,),
    sniff=sniff,
    peek=peek,
    convert=convert,
    code=code_version,
    beside=beside,
)
