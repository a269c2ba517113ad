"""NCCL's log of a job (NCCL_DEBUG=INFO), alone or among whatever else the job prints.

Read are communicators, what their connections go by, channels, variables that were set, warnings,
times to make a communicator; versions 2.4 to 2.28, RCCL likewise. A table of nccl-tests in the same
file is read with it.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from tracekit.collectors import Collector
from tracekit.collectors.nccl_text.lines import DOCKER
from tracekit.collectors.nccl_text.rows import (
    OF_TESTS,
    beside,
    code_version,
    convert,
    peek,
    sampled,
)
from tracekit.schema import BANDWIDTH_BASELINES, COMMUNICATORS, NCCL_MESSAGES, TRANSPORTS

if TYPE_CHECKING:
    from pathlib import Path

_LINE = re.compile(rb"[\w.-]+:\d+:\d+ \[-?\d+\] (?:\S+:\d+ )?NCCL (?:INFO|WARN) ")
_NO_TEXT = (b"[{", b"\x80", b"\x1f\x8b", b"PK", b"PAR1", b"SQLite")


def sniff(path: Path) -> bool:
    """Whether NCCL speaks in the file, and nccl-tests prints no table beside it."""
    try:
        sample = sampled(path)
    except OSError:
        return False
    first = sample.lstrip()
    is_json = first.startswith(b"{") and not first.startswith(DOCKER.encode())
    if is_json or first.startswith(_NO_TEXT) or b"\0" in sample:
        return False
    return _LINE.search(sample) is not None and not any(mark in sample for mark in OF_TESTS)


COLLECTOR = Collector(
    id="nccl-log",
    title="NCCL's log (NCCL_DEBUG=INFO), alone or mixed into a job's output",
    produces=(COMMUNICATORS, TRANSPORTS, NCCL_MESSAGES, BANDWIDTH_BASELINES),
    sniff=sniff,
    peek=peek,
    convert=partial(convert, collector="nccl-log"),
    code=code_version,
    beside=beside,
)
