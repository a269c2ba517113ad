"""Files of the example plugin that comes with NCCL: one a communicator and rank.

A file says neither how many ranks there are nor which process of the job it is: each communicator
is a run of its own.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path

import tracekit.schema
from tracekit.collectors import Collector, Options, Peek, RankFile
from tracekit.collectors.nccl_profiler.calls import collective_rows, communicator_of_all
from tracekit.collectors.nccl_profiler.example_plugin import Events, read_events
from tracekit.errors import InputError
from tracekit.schema import COLLECTIVES
from tracekit.store import Capture, Check, SourceIdentity, path_text, write_table

HEAD_BYTES = 1 << 12
_KEYS = (b'"cat": "GROUP_API"', b'"cat": "COLL_API"', b'"cat": "COLL"', b'"cat": "P2P"')
RECORD = (
    "Record with NCCL_PROFILER_PLUGIN=example, NCCL_PROFILE_EVENT_MASK=70 and "
    "NCCL_PROFILE_DUMP_FILE=/shared/folder/nccl on a device whose clock NCCL reads (≥ 2.27)."
)


def sniff(path: Path) -> bool:
    """Whether it is a list of events of the plugin's categories."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return False
    return head.lstrip().startswith(b"[") and any(key in head for key in _KEYS)


def peek(path: Path) -> Peek:
    """The rank in the communicator, which the run is named after."""
    stat = path.stat()
    digest = sha256(f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()
    try:
        calls = read_events(path).calls
    except InputError:
        return Peek(digest=digest)
    group = communicator_of_all(call.communicator for call in calls)
    if group is None:
        return Peek(digest=digest)
    started_ns = min(call.start_ns for call in calls)
    key = f"communicator {group.key}"
    return Peek(rank=group.rank, started_ns=started_ns, run_key=key, digest=digest)


def convert(file: RankFile, folder: Path, options: Options) -> Capture:
    """Write the calls of one communicator and rank.

    Raises:
        InputError: no call in the file has a time on the device.
    """
    found = read_events(file.path)
    if not found.calls:
        raise InputError(
            f"{file.path}: no call of {found.n_events} events has a time on the device", hint=RECORD
        )
    rows = collective_rows(found.calls, options.epoch_ns, "NCCL's example plugin")
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
        world_size=file.world_size,
        is_clock_base_known=False,  # devices count from their own start
        n_events=found.n_events,
        n_bytes=stat.st_size,
        n_rows={COLLECTIVES.name: rows.height},
        dropped={"not an event": found.n_unread} if found.n_unread else {},
        quality=_checks(found),
    )


def _checks(found: Events) -> tuple[Check, ...]:
    if not found.n_without_times:
        return ()
    why = "calls without a start and a stop of any channel on the device are left out"
    return (
        Check(check="no device time", severity="info", count=found.n_without_times, detail=why),
    )


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
    id="nccl-example-profiler",
    title="Files of NCCL's example profiler plugin (JSON)",
    produces=(COLLECTIVES,),
    sniff=sniff,
    peek=peek,
    convert=convert,
    code=code_version,
)
