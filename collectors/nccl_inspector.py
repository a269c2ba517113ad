"""NCCL Inspector's lines: a file a process, one JSON object a collective or message that ended.

Joined with traces of the job they add nothing: the traces hold the calls of their steps, and would
count twice.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path

import tracekit.schema
from tracekit.collectors import Beside, Collector, Options, Peek, RankFile
from tracekit.collectors.nccl_profiler.calls import collective_rows, communicator_of_all
from tracekit.collectors.nccl_profiler.inspector import Lines, is_line, read_lines
from tracekit.errors import InputError
from tracekit.schema import COLLECTIVES
from tracekit.store import Capture, Check, SourceIdentity, path_text, write_table

HEAD_BYTES = 1 << 16
_NO_DEVICE_TIME = (
    "calls that the host timed are left out: that ends when a call is enqueued; "
    "NCCL_INSPECTOR_REQUIRE_KERNEL_TIMING=1 waits for the device's time"
)
RECORD = "Record with NCCL_PROFILER_PLUGIN=inspector and NCCL_INSPECTOR_ENABLE=1 (docs/nccl.md)."


def sniff(path: Path) -> bool:
    """Whether a line near its start is one of the Inspector."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return False
    return any(is_line(line) for line in head.split(b"\n"))


def peek(path: Path) -> Peek:
    """The rank of a process: that in its largest communicator, which its run is named after."""
    try:
        found = read_lines(path)
    except InputError:
        return Peek(digest=_digest(path))
    of_all = communicator_of_all(call.communicator for call in found.calls)
    if of_all is None:
        return Peek(digest=_digest(path))
    return Peek(
        rank=of_all.rank,
        world_size=of_all.n_ranks,
        started_ns=min(call.start_ns for call in found.calls),
        run_key=f"{of_all.name or 'communicator'} {of_all.key}",
        digest=_digest(path),
    )


def convert(file: RankFile, folder: Path, options: Options) -> Capture:
    """Write the calls of one process.

    Raises:
        InputError: no call in the file has a time on the device.
    """
    found = read_lines(file.path)
    if not found.calls:
        raise InputError(
            f"{file.path}: no call of {found.n_lines} lines has a time on the device", hint=RECORD
        )
    rows = collective_rows(found.calls, options.epoch_ns, "NCCL Inspector")
    write_table(folder, COLLECTIVES.name, file.rank, rows)
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
        host=found.host,
        world_size=file.world_size,
        is_clock_base_known=found.n_without_times == 0,
        n_events=found.n_lines,
        n_bytes=stat.st_size,
        n_rows={COLLECTIVES.name: rows.height},
        dropped={"not a line of NCCL Inspector": found.n_unread} if found.n_unread else {},
        quality=_checks(found),
    )


def beside(file: RankFile, _folder: Path, _options: Options) -> Beside:
    """Say that the traces hold the calls: both would count them twice."""
    found = read_lines(file.path)
    check = Check(
        check="calls are in the trace",
        severity="info",
        count=len(found.calls),
        detail="calls that NCCL Inspector wrote are left out: the trace beside them holds those of "
        "its steps. Analyse them alone to see all.",
    )
    return Beside(host=found.host, n_rows={}, versions={}, environment={}, quality=(check,))


def _checks(found: Lines) -> tuple[Check, ...]:
    said = {
        "no device time": (
            found.n_of_host,
            _NO_DEVICE_TIME,
        ),
        "times noticed by the host": (
            found.n_noticed,
            "a thread of the host noticed when these began and ended, which it does late",
        ),
        "no time stamps": (
            found.n_without_times,
            "calls have a duration, and no time: NCCL_INSPECTOR_DUMP_VERBOSE=1 records it",
        ),
        "lines not understood": (found.n_unread, "cut, or of another program"),
    }
    checks = [
        Check(check=name, severity="info", count=n, detail=why)
        for name, (n, why) in said.items()
        if n
    ]
    least = Check(
        check="small calls are not recorded",
        severity="info",
        count=len(found.calls),
        detail="NCCL Inspector leaves out calls below 8,192 bytes unless "
        "NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES says otherwise, and keeps the last 1,024 of each "
        "communicator between two dumps",
    )
    return (*checks, least)


def _digest(path: Path) -> str:
    stat = path.stat()
    return sha256(f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()


@cache
def code_version() -> str:
    """What the rows rest on: this module, its parts and the table."""
    digest = sha256()
    here = Path(__file__)
    parts = sorted(here.with_name("nccl_profiler").glob("*.py"))
    for module in (here, *parts, Path(tracekit.schema.__file__).with_name("collectives.py")):
        digest.update(module.read_bytes())
    return digest.hexdigest()


COLLECTOR = Collector(
    id="nccl-inspector",
    title="Lines of NCCL Inspector (JSON, a file a process)",
    produces=(COLLECTIVES,),
    sniff=sniff,
    peek=peek,
    convert=convert,
    code=code_version,
    beside=beside,
    is_joined_whole=True,
)
