"""Command line of the sampler: `python -m tracekit.collectors.telemetry OUT.jsonl`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from tracekit.collectors.telemetry.sampler import Options, run
from tracekit.collectors.telemetry.schedule import LEAST_EVERY_S

_DESCRIPTION = "Sample the devices and the host beside a job, until the parent process ends."
_EXAMPLE = "example: python -m tracekit.collectors.telemetry telemetry.jsonl --every-s 0.1"


def options(arguments: list[str] | None = None) -> Options:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m tracekit.collectors.telemetry", description=_DESCRIPTION, epilog=_EXAMPLE
    )
    parser.add_argument("out", type=Path, metavar="OUT.jsonl", help="appended to")
    parser.add_argument(
        "--every-s", type=_period_s, default=1.0, metavar="S", help="period; default: 1.0"
    )
    parser.add_argument(
        "--parent",
        type=int,
        default=os.getppid(),
        metavar="PID",
        help="end with this process; default: the one that starts this",
    )
    parser.add_argument(
        "--job",
        type=int,
        metavar="PID",
        help="first process of the job, whose CPU time is counted; default: that of --parent",
    )
    parser.add_argument(
        "--device",
        action="append",
        default=[],
        metavar="UUID",
        help="sample this device; repeatable; default: all",
    )
    parser.add_argument(
        "--most-mb", type=int, default=256, metavar="MB", help="size of the file; default: 256"
    )
    parser.add_argument(
        "--keep-latest",
        action="store_true",
        help="at that size keep the newer half, in OUT.jsonl and OUT.old.jsonl, and go on",
    )
    given = parser.parse_args(arguments)
    return Options(
        out=given.out,
        every_ns=round(given.every_s * 1e9),
        parent_pid=given.parent,
        job_pid=given.job,
        devices=tuple(given.device),
        most_bytes=given.most_mb * 10**6 // (2 if given.keep_latest else 1),
        keeps_latest=given.keep_latest,
    )


def _period_s(text: str) -> float:
    value_s = float(text)
    if not value_s >= LEAST_EVERY_S:
        raise argparse.ArgumentTypeError(f"{text} is less than {LEAST_EVERY_S} s")
    return value_s


if __name__ == "__main__":
    run(options())
