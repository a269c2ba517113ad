"""What nccl-tests and rccl-tests measured: their table, also among other lines, or JSON (-J).

The bandwidth that the fabric gives is the yardstick of what a job gets. NCCL's log in the same file
is read with it.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from tracekit.collectors import Collector
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

_KEYS = (b'"start_time"', b'"args"', b"_perf")
"""What a file of -J begins with."""


def sniff(path: Path) -> bool:
    """Whether the table of a test is in the file, or JSON of one."""
    try:
        sample = sampled(path)
    except OSError:
        return False
    if sample.lstrip().startswith(b"{"):
        is_first = re.match(rb'\s*\{\s*"version"\s*:\s*\d+', sample) is not None
        return is_first and all(key in sample for key in _KEYS)
    is_text = b"\0" not in sample and not sample.startswith((b"\x80", b"[{", b"PK"))
    return is_text and any(mark in sample for mark in OF_TESTS)


COLLECTOR = Collector(
    id="nccl-tests",
    title="Output of nccl-tests or rccl-tests: text, or JSON (-J)",
    produces=(BANDWIDTH_BASELINES, COMMUNICATORS, TRANSPORTS, NCCL_MESSAGES),
    sniff=sniff,
    peek=peek,
    convert=partial(convert, collector="nccl-tests"),
    code=code_version,
    beside=beside,
)
