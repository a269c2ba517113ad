"""The one table that benchmarks print: a row a measurement, in sections, ratios beside targets."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

HEADING = "| what | tracekit | peer | ratio | target |\n|---|---|---|---|---|"


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement; `ratio` is how many times more the peer takes, unless `what` says else."""

    what: str
    tracekit: str
    peer: str = ""
    ratio: str = ""
    target: str = ""


def print_section(title: str, rows: Iterable[Row]) -> None:
    """Print the rows below their title, each as soon as it is measured."""
    print(f"| **{title}** | | | | |", flush=True)
    for row in rows:
        cells = (row.what, row.tracekit, row.peer, row.ratio, row.target)
        print("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |", flush=True)


def needs(module: str, install: str, rows: Iterable[Row], what: str) -> Iterator[Row]:
    """The rows, or one that says how to install what they are measured with."""
    if is_installed(module):
        yield from rows
    else:
        yield Row(what, "", f"skipped: {install}")


def is_installed(module: str) -> bool:
    """Whether a module can be imported."""
    return find_spec(module) is not None


def at_least(ratio: float, least: float) -> tuple[str, str]:
    """Ratio and target, and whether it is met."""
    return f"{ratio:.1f} ×", f"≥ {least:g} ×: {_met(is_met=ratio >= least)}"


def at_most(ratio: float, most: float) -> tuple[str, str]:
    """Ratio and target, and whether it is met."""
    return f"{ratio:.2f} ×", f"≤ {most:g} ×: {_met(is_met=ratio <= most)}"


def bound(value: float, unit: str, *, least: float | None = None, most: float | None = None) -> str:
    """A target of the value itself, and whether it is met."""
    if least is not None:
        return f"≥ {least:g} {unit}: {_met(is_met=value >= least)}"
    assert most is not None
    return f"≤ {most:g} {unit}: {_met(is_met=value <= most)}"


def _met(*, is_met: bool) -> str:
    return "met" if is_met else "missed"


def mb(size_bytes: float) -> str:
    """Bytes as MB of 10^6."""
    return f"{size_bytes / 1e6:,.{0 if size_bytes >= 1e7 else 1}f} MB"


def seconds(value_s: float) -> str:
    """Seconds with as many digits as they carry."""
    return f"{value_s:.2f} s" if value_s < 10 else f"{value_s:.1f} s"


def machine() -> str:
    """Date and machine, as a line."""
    today = datetime.now(UTC).date()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    kind = f"{platform.machine()}, {cores} cores"
    return f"{today}, {kind}, Python {platform.python_version()}"
