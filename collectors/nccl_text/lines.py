"""Lines of logs → what NCCL said in them, by process: logs mix many ranks and whatever else prints.

NCCL begins each line of its own with "host:pid:thread [device] NCCL INFO" (WARN: the source line
stands before the level), perhaps behind a time stamp and what the launcher puts before each line.
A line may hold two of them, where processes wrote at once.

Format: NVIDIA/nccl, src/debug.cc (2.4 to 2.28).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.collectors.chrome_trace.stream import Cut, pieces

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_LINE_BYTES = 1 << 14
"""What a longer line holds beyond it is not read: no line of NCCL is as long."""
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_SAID = re.compile(
    # from the start of a word, and of a host's greatest length: no line takes long to look through
    r"(?<!\w)(?P<host>[A-Za-z0-9_][\w.-]{0,252}):(?P<pid>\d{1,10}):(?P<thread>\d{1,10}) "
    r"\[(?P<device>-?\d{1,4})\] (?:(?P<where>[^\s\[\]]{1,200}:\d{1,6}) )?"
    r"NCCL (?P<level>INFO|WARN|ERROR) "
)
_LABEL = re.compile(
    r"\s*(?:\[\d+,(?P<mpi>\d{1,6})\]<std|\[rank(?P<torch>\d{1,6})\]:|(?P<slurm>\d{1,6}): )"
)
"""A rank that a launcher writes before each line: mpirun --tag-output, torch, srun --label."""
MARK = " NCCL "
DOCKER = '{"log":'
"""Docker's log driver writes each line as JSON."""


@dataclass(frozen=True, slots=True)
class Process:
    """Who speaks: a device of a process, which is one rank."""

    host: str
    pid: int
    device: int


@dataclass(frozen=True, slots=True)
class Said:
    """One thing that NCCL said. `label` is the rank that the launcher wrote before the line."""

    process: Process
    thread: int
    level: str
    where: str | None
    text: str
    label: int | None


@dataclass(frozen=True, slots=True)
class Other:
    """A line that is not NCCL's own, without what stands before it."""

    text: str


def lines(path: Path, cut: Cut) -> Iterator[Said | Other]:
    """What stands in a log, in its order; an archive that ends early is noted in `cut`.

    Raises:
        OSError: the file cannot be read.
    """
    hosts: set[str] = set()
    for text in _texts(path, cut):
        if text.startswith(DOCKER):
            text = _of_docker(text)  # noqa: PLW2901 - the same line, as the job wrote it
        if "\x1b" in text:
            text = _ANSI.sub("", text)  # noqa: PLW2901 - the same line, without colours
        found = list(_SAID.finditer(text)) if MARK in text else []
        before = text[: found[0].start()] if found else text
        labelled = _LABEL.match(text)
        label = next((int(n) for n in labelled.groups() if n), None) if labelled else None
        if not found:
            yield Other(text[labelled.end() :] if labelled else text)
            continue
        for match, following in zip(found, [*found[1:], None], strict=True):
            is_clean = match is found[0] and (not before or before[-1] in " \t]:>)|")
            host = _host(match["host"], hosts, is_clean=is_clean)
            end = following.start() if following else len(text)
            if following is not None:  # what is glued to the next host is the end of this line
                end += len(following["host"]) - len(_host(following["host"], hosts))
            yield Said(
                process=Process(host, int(match["pid"]), int(match["device"])),
                thread=int(match["thread"]),
                level=match["level"],
                where=match["where"],
                text=text[match.end() : end].strip(),
                label=label,
            )


def _of_docker(text: str) -> str:
    """The line in a line of Docker's log; as it is where that is cut."""
    try:
        line = json.loads(text)["log"]
    except (ValueError, KeyError, RecursionError):
        return text
    return line.rstrip("\n") if isinstance(line, str) else text


def _host(written: str, hosts: set[str], *, is_clean: bool = False) -> str:
    """The host's name; where a line is glued to it, the known host that it ends with."""
    if is_clean or written in hosts:
        hosts.add(written)
        return written
    fitting = [host for host in hosts if written.endswith(host)]
    return max(fitting, key=len, default=written)


def _texts(path: Path, cut: Cut) -> Iterator[str]:
    """Lines of a file, each of bounded length."""
    rest = b""
    is_long = False
    for piece in pieces(path, cut):
        whole = (rest + piece).replace(b"\r", b"\n").split(b"\n")
        rest = whole.pop()
        for number, line in enumerate(whole):
            if not (is_long and number == 0):
                yield line[:MAX_LINE_BYTES].decode("utf-8", errors="replace")
        is_long = is_long and not whole
        if len(rest) > MAX_LINE_BYTES:
            if not is_long:
                yield rest[:MAX_LINE_BYTES].decode("utf-8", errors="replace")
            rest, is_long = b"", True
    if rest and not is_long:
        yield rest.decode("utf-8", errors="replace")
