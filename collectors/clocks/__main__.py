"""Measure the clock of this host for as long as a job runs: one process for each host.

The host of rank 0 runs it with `--serve`, and is the reference of the others. It ends with the
process it was started for, after one more measurement, and leaves the readings alone behind.
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import socket
import sys
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.collectors.clocks.addresses import addresses
from tracekit.collectors.clocks.ping import TOKEN_BYTES
from tracekit.collectors.clocks.readings import Asker, Record, own_reading, reading
from tracekit.collectors.clocks.rendezvous import Reference, folder_of, publish, withdraw
from tracekit.collectors.clocks.server import Server
from tracekit.collectors.telemetry.parent import Parent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NICENESS = 10
"""The job comes first; what is measured late is not among the fastest tenth."""
TICK_S = 0.2
"""How soon the end of the job is noticed."""
PERIODIC_FIND_S = 5.0
END_FIND_S = 2.0
LINGER_S = 3.0
"""What the reference goes on for, so that hosts whose job ends with it measure once more."""


@dataclass(slots=True)
class _Job:
    """Tells when to end: on a signal, or with the process that this one serves."""

    parent: Parent
    signals: list[int] = field(default_factory=list)

    def is_over(self) -> bool:
        return bool(self.signals) or self.parent.is_gone()


def main(
    arguments: Sequence[str] | None = None, *, now_ns: Callable[[], int] = time.time_ns
) -> int:
    """Record this host's clock until the job is over; the exit code is 1 where it cannot be.

    Args:
        arguments: of the command line.
        now_ns: this host's clock.
    """
    asked = _parser().parse_args(arguments)
    job = _Job(Parent(asked.parent))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, _: job.signals.append(got))
    os.nice(NICENESS)
    try:
        folder = folder_of(asked.folder)
        with closing(Record(folder, asked.host)) as record:
            if not record.is_ours:
                text = f"Another process records the clock of {asked.host} already\n"
                sys.stderr.write(text)
            if asked.serve:
                _serve(asked, job, folder, record, now_ns)
            elif record.is_ours:
                _ask(asked, job, folder, record, now_ns)
    except OSError as error:
        sys.stderr.write(f"The clock of {asked.host} is not recorded: {error}\n")
        return 1
    return 0


def _serve(
    asked: argparse.Namespace,
    job: _Job,
    folder: Path,
    record: Record,
    now_ns: Callable[[], int],
) -> None:
    token = secrets.token_hex(TOKEN_BYTES // 2)
    with Server(token.encode(), asked.port, now_ns=now_ns) as server:
        reference = Reference(host=asked.host, addresses=addresses(), port=server.port, token=token)
        publish(folder, reference)
        try:
            record.write(own_reading("start", asked.host, now_ns), now_ns)
            next_s = time.monotonic() + asked.every_s
            while not job.is_over():
                server.serve(TICK_S)
                if time.monotonic() >= next_s:
                    record.write(own_reading("periodic", asked.host, now_ns), now_ns)
                    next_s += asked.every_s
            record.write(own_reading("end", asked.host, now_ns), now_ns)
            if server.n_known:
                server.serve(LINGER_S)
        finally:
            withdraw(folder, reference)


def _ask(
    asked: argparse.Namespace,
    job: _Job,
    folder: Path,
    record: Record,
    now_ns: Callable[[], int],
) -> None:
    asker = Asker(folder=folder, is_over=job.is_over, now_ns=now_ns)
    record.write(reading("start", asker, asked.find_s), now_ns)
    next_s = time.monotonic() + asked.every_s
    while not job.is_over():
        time.sleep(TICK_S)
        if time.monotonic() >= next_s:
            record.write(reading("periodic", asker, PERIODIC_FIND_S), now_ns)
            next_s = time.monotonic() + asked.every_s
    record.write(reading("end", asker, END_FIND_S), now_ns)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tracekit.collectors.clocks", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the run folder, shared")
    parser.add_argument("--serve", action="store_true", help="be the reference of the other hosts")
    parser.add_argument(
        "--parent", type=int, default=os.getppid(), help="end with this process; default: parent"
    )
    parser.add_argument("--every-s", type=float, default=60.0, help="seconds between measurements")
    parser.add_argument(
        "--find-s", type=float, default=60.0, help="seconds to wait for a reference"
    )
    parser.add_argument("--host", default=socket.gethostname(), help="the name of this host")
    parser.add_argument("--port", type=int, default=0, help="to listen on; default: any")
    return parser


if __name__ == "__main__":
    sys.exit(main())
