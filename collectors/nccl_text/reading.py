"""One text file → all that is read from it: communicators, connections, messages, measurements.

One file may hold all of them, as where a job prints NCCL's log and the table of nccl-tests, and
many ranks: it is read once in each process and kept until another one is asked for.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tracekit.collectors.chrome_trace.stream import Cut, head, pieces
from tracekit.collectors.nccl_text.communicators import Told
from tracekit.collectors.nccl_text.lines import DOCKER, Process, Said, lines
from tracekit.collectors.nccl_text.measurements import Tests, from_json
from tracekit.collectors.nccl_text.messages import ENVIRONMENT, Messages
from tracekit.collectors.nccl_text.numbering import Numbering, numbering
from tracekit.errors import InputError

MAX_JSON_BYTES = 1 << 28


@dataclass(frozen=True, slots=True)
class Reading:
    """All that a file says. `n_lines` are NCCL's lines and the rows of measurements."""

    told: Told
    messages: Messages
    tests: Tests
    numbering: Numbering
    n_lines: int
    cut: str

    @property
    def ranks(self) -> tuple[int, ...]:
        """Global ranks that the log tells of, in order; of measurements alone, the first."""
        return tuple(sorted(set(self.numbering.ranks.values()))) or (0,)

    @property
    def has_log(self) -> bool:
        """Whether a process of NCCL spoke that made a communicator or said what we keep."""
        return bool(self.numbering.ranks)


def reading(path: Path) -> Reading:
    """All that a file says.

    Raises:
        InputError: it cannot be read, or is JSON that is damaged.
    """
    try:
        stat = path.stat()
        return _reading(str(path), stat.st_size, stat.st_mtime_ns)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


@lru_cache(maxsize=2)
def _reading(name: str, _size_bytes: int, _modified_ns: int) -> Reading:
    path = Path(name)
    first = head(path, 64).lstrip()
    if first.startswith(b"{") and not first.startswith(DOCKER.encode()):
        return _of_json(path)
    told, messages, tests, cut = Told(), Messages(), Tests(), Cut()
    labels: dict[Process, int] = {}
    n_said = 0
    for line in lines(path, cut):
        if isinstance(line, Said):
            n_said += 1
            if line.label is not None:
                labels.setdefault(line.process, line.label)
            if not told.hear(line):
                messages.hear(line)
        else:
            tests.hear(line.text)
            messages.hear_version(line.text)
    numbers = numbering(told.whole(), labels, list(messages.by_process))
    n_rows = sum(len(test.rows) for test in tests.tests)
    return Reading(told, messages, tests, numbers, n_said + n_rows, cut.why)


def _of_json(path: Path) -> Reading:
    """What nccl-tests wrote with -J: measurements, and the variables it ran with."""
    cut = Cut()
    data = b""
    for piece in pieces(path, cut):
        data += piece
        if len(data) > MAX_JSON_BYTES:
            raise InputError(f"{path}: more than {MAX_JSON_BYTES:,} bytes: no output of nccl-tests")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path}: no whole output of nccl-tests: {error}",
            hint="A test that was killed leaves a part: its text output holds the rows.",
        ) from error
    tests = from_json(document)
    messages = Messages()
    process = Process(host="", pid=0, device=0)
    for variable in _texts(document.get("env")):
        name, _, value = variable.partition("=")
        if name.startswith(("NCCL_", "RCCL_")):
            counted = messages.by_process.setdefault(process, Counter())
            counted[ENVIRONMENT, name[:60], value[:300]] += 1
    n_rows = sum(len(test.rows) for test in tests.tests)
    return Reading(Told(), messages, tests, Numbering(), n_rows, cut.why)


def _texts(value: object) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
