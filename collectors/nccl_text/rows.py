"""What a text file says of one rank, as rows of the tables, and their way into a run folder."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

import tracekit.schema
from tracekit.collectors import Beside, Peek
from tracekit.collectors.chrome_trace.stream import GZIP_MAGIC, head
from tracekit.collectors.nccl_text.messages import ENVIRONMENT
from tracekit.collectors.nccl_text.reading import Reading, reading
from tracekit.collectors.sources import redaction
from tracekit.errors import InputError
from tracekit.schema import BANDWIDTH_BASELINES, COMMUNICATORS, NCCL_MESSAGES, TRANSPORTS, Table
from tracekit.schema.communicators import INIT_PARTS
from tracekit.store import Capture, Check, SourceIdentity, path_text, rank_path, write_table

if TYPE_CHECKING:
    from tracekit.collectors import Options, RankFile
    from tracekit.collectors.nccl_text.communicators import Communicator, Connection
    from tracekit.collectors.nccl_text.lines import Process

TEXT_TABLES = (COMMUNICATORS, TRANSPORTS, NCCL_MESSAGES, BANDWIDTH_BASELINES)
SNIFF_BYTES = 64 << 10
EDGE_BYTES, PIECE_BYTES = 4 << 10, 1 << 10
"""The pieces of a sample: both ends of the file, and others spread over it."""
OF_TESTS = (b"# nThread ", b"# nThreads: ", b"# Avg bus bandwidth", b"# Out of bounds values")
"""Lines that only nccl-tests and rccl-tests print."""


def sampled(path: Path) -> bytes:
    """Pieces of a file, 64 KiB in all: a job prints much before and after NCCL speaks."""
    size = path.stat().st_size
    n_pieces = (SNIFF_BYTES - 2 * EDGE_BYTES) // PIECE_BYTES
    with path.open("rb") as file:
        if size <= SNIFF_BYTES:
            sample = file.read()
            return head(path, SNIFF_BYTES) if sample.startswith(GZIP_MAGIC) else sample
        if file.read(2) == GZIP_MAGIC:
            return head(path, SNIFF_BYTES)
        places = [(number * size // n_pieces, PIECE_BYTES) for number in range(n_pieces)]
        found = []
        for start, n_bytes in [(0, EDGE_BYTES), *places, (size - EDGE_BYTES, EDGE_BYTES)]:
            file.seek(start)
            found.append(file.read(n_bytes))
    return b"\n".join(found)


def peek(path: Path) -> Peek:
    """Ranks that a log tells of. Those of a file that was not told which ranks are not known."""
    stat = path.stat()
    digest = sha256(f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()
    try:
        read = reading(path)
    except InputError:  # said where it is converted
        return Peek(ranks=(0,), are_all=True, digest=digest, is_of_any_job=True)
    numbers = read.numbering
    if not read.has_log:
        return Peek(ranks=(0,), are_all=True, digest=digest, is_of_any_job=True)
    if numbers.world_size is None and len(read.ranks) == 1:
        return Peek(digest=digest)
    return Peek(
        ranks=read.ranks,
        are_all=numbers.world_size is None,
        world_size=numbers.world_size or len(read.ranks),
        trace_id=numbers.key,
        digest=digest,
    )


def convert(file: RankFile, folder: Path, options: Options, collector: str) -> Capture:
    """Write what a file says of one rank, as a run of its own.

    Raises:
        InputError: the file cannot be read, or nothing in it is understood.
    """
    for table in TEXT_TABLES:
        write_table(folder, table.name, file.rank, table.empty())
    told = beside(file, folder, options)
    stat = file.path.stat()
    read = reading(file.path)
    return Capture(
        rank=file.rank,
        rank_source=file.rank_source,
        source=SourceIdentity(
            path=path_text(file.path), size_bytes=stat.st_size, modified_ns=stat.st_mtime_ns
        ),
        collector=collector,
        code=code_version(),
        epoch_ns=options.epoch_ns,
        host=told.host or file.host,
        world_size=file.world_size,
        is_clock_base_known=False,
        n_events=read.n_lines // len(read.ranks),
        n_bytes=stat.st_size // len(read.ranks),
        n_rows=told.n_rows,
        versions=told.versions,
        environment=told.environment,
        quality=told.quality,
    )


def beside(file: RankFile, folder: Path, options: Options) -> Beside:
    """Add what a file says of a rank to the tables of it, which other files may have begun.

    Raises:
        InputError: the file cannot be read, or nothing in it is understood.
    """
    path, read = file.path, reading(file.path)
    # of one process, which the log does not number, the name of the file may tell the rank
    is_its_own = file.rank not in read.ranks and len(read.ranks) == 1
    rank = read.ranks[0] if is_its_own else file.rank
    frames = _frames(read, rank, is_first=file.is_first)
    if not any(frame.height for frame in frames.values()) and not read.has_log:
        raise InputError(
            f"{path}: no communicator, no connection and no measurement of NCCL in it",
            hint="Run the job with NCCL_DEBUG=INFO.",
        )
    host = _host(read, rank)
    if options.is_redacted:
        frames = {table: redacted(frame) for table, frame in frames.items()}
    n_rows = {}
    for table, frame in frames.items():
        height = _added(folder, table, file.rank, frame)
        if height:
            n_rows[table.name] = height
    return Beside(
        host=host,
        n_rows=n_rows,
        versions=read.messages.versions,
        environment=_environment(frames[NCCL_MESSAGES]),
        quality=_checks(read),
    )


def _environment(messages: pl.DataFrame) -> dict[str, str]:
    """Variables of a rank and their values; of several the last one."""
    return dict(messages.filter(kind=ENVIRONMENT).select("name", "text").iter_rows())


def _added(folder: Path, table: Table, rank: int, rows: pl.DataFrame) -> int:
    """Write the rows behind those that are there; returns how many there are then."""
    path = rank_path(folder, table.name, rank)
    there = pl.read_parquet(path) if path.is_file() else table.empty()
    both = pl.concat([there, rows])
    write_table(folder, table.name, rank, both)
    return both.height


def _frames(read: Reading, rank: int, *, is_first: bool) -> dict[Table, pl.DataFrame]:
    """Rows of each table, in the order of the log; measurements stand with the first rank."""
    own = {process for process, number in read.numbering.ranks.items() if number == rank}
    communicators = [c for c in read.told.whole() if c.process in own]
    kept = {id(each) for each in communicators}
    connections = [c for c in read.told.connections if id(c.communicator) in kept]
    rows: dict[Table, list[dict[str, Any]]] = {
        COMMUNICATORS: [_communicator(each) for each in communicators],
        TRANSPORTS: [_connection(each) for each in connections],
        NCCL_MESSAGES: _messages(read, rank),
        BANDWIDTH_BASELINES: read.tests.measured() if is_first else [],
    }
    return {
        table: pl.DataFrame(found, schema=table.schema, orient="row")
        for table, found in rows.items()
    }


def _communicator(each: Communicator) -> dict[str, Any]:
    facts = each.facts
    return {
        "host": each.process.host,
        "pid": each.process.pid,
        "communicator": each.address,
        "communicator_id": facts.get("commId"),
        "parent": f"0x{facts['parent']}" if "parent" in facts else None,
        "communicator_rank": each.rank,
        "n_ranks": each.n_ranks,
        "n_nodes": _count(facts.get("nNodes")),
        "n_local_ranks": _count(facts.get("localRanks")),
        "device": each.process.device,
        "nvml_device": _count(facts.get("nvmlDev")),
        "bus_id": facts.get("busId"),
        "is_complete": each.is_complete,
        "network": each.network,
        "is_nvls_available": each.is_nvls_available,
        "n_coll_channels": each.channels.get("coll"),
        "n_nvls_channels": each.channels.get("nvls"),
        "n_p2p_channels": each.channels.get("p2p"),
        "init_ns": each.timings_ns.get("init"),
        **{f"{part}_ns": each.timings_ns.get(part) for part in INIT_PARTS},
    }


def _connection(each: Connection) -> dict[str, Any]:
    parts = each.via.split("/")
    is_net = parts[0] == "NET" and len(parts) > 1
    return {
        "host": each.communicator.process.host,
        "pid": each.communicator.process.pid,
        "communicator": each.communicator.address,
        "communicator_rank": each.communicator.rank,
        "peer": each.peer,
        "channel": each.channel,
        "is_message": each.is_message,
        "direction": each.direction,
        "transport": parts[0],
        "network": parts[1] if is_net else None,
        "network_device": parts[2] if is_net and len(parts) > 2 else None,
        # GDRDMA(PCI) since 2.27, where the path is named
        "is_gpu_direct": any(p.startswith("GDRDMA") for p in parts[2:]) if is_net else None,
        "via": each.via,
    }


def _messages(read: Reading, rank: int) -> list[dict[str, Any]]:
    """Messages of the rank's processes. A device without a rank of its own speaks for the first.

    The first is that of its process: some is said before a device is chosen.
    """
    first: dict[tuple[str, int], int] = {}
    for process, number in read.numbering.ranks.items():
        place = (process.host, process.pid)
        first[place] = min(first.get(place, number), number)

    def rank_of(process: Process) -> int:
        own = read.numbering.ranks.get(process)
        return own if own is not None else first.get((process.host, process.pid), read.ranks[0])

    return [
        {
            "host": process.host,
            "pid": process.pid,
            "kind": kind,
            "name": name,
            "text": text,
            "n_times": n,
        }
        for process, counted in read.messages.by_process.items()
        if rank_of(process) == rank
        for (kind, name, text), n in counted.items()
    ]


def _host(read: Reading, rank: int) -> str | None:
    return next((p.host for p, number in read.numbering.ranks.items() if number == rank), None)


def _checks(read: Reading) -> tuple[Check, ...]:
    """What the log leaves open."""
    found = []
    if read.has_log and read.numbering.world_size is None:
        detail = f"no communicator of all ranks: numbered by the {read.numbering.source}"
        found.append(Check(check="ranks not in the log", severity="info", count=1, detail=detail))
    if read.told.n_left_out:
        detail = "connections beyond a bound are counted only"
        n = read.told.n_left_out
        found.append(Check(check="log too large", severity="warning", count=n, detail=detail))
    if read.tests.n_damaged:
        detail = "rows of nccl-tests that are torn by other lines are left out"
        n = read.tests.n_damaged
        found.append(Check(check="torn rows", severity="info", count=n, detail=detail))
    if read.cut:
        found.append(Check(check="file cut", severity="warning", count=1, detail=read.cut))
    return tuple(found)


def redacted(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows without hosts, addresses, paths and names of interfaces."""
    hide = redaction.alias
    if "host" in rows.columns:
        rows = rows.with_columns(
            pl.col("host").map_elements(lambda host: hide("host", host), return_dtype=pl.String)
        )
    if "hosts" in rows.columns:
        rows = rows.with_columns(
            pl.col("hosts").map_elements(
                lambda hosts: ",".join(hide("host", host) for host in hosts.split(",")),
                return_dtype=pl.String,
            )
        )
    if "text" in rows.columns:  # warnings and networks name hosts and addresses freely
        is_plain = pl.col("text").str.contains(r"^[A-Za-z0-9 .]{0,24}$")
        rows = rows.with_columns(
            pl.when(is_plain)
            .then("text")
            .otherwise(
                pl.col("text").map_elements(lambda t: hide("text", t), return_dtype=pl.String)
            )
        )
    return rows


def _count(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 10 else None


@cache
def code_version() -> str:
    """What the rows rest on: this package and the tables."""
    digest = sha256()
    schema = Path(tracekit.schema.__file__)
    own = sorted(Path(__file__).parent.glob("*.py"))
    for module in (*own, *(schema.with_name(f"{table.name}.py") for table in TEXT_TABLES)):
        digest.update(module.read_bytes())
    return digest.hexdigest()
