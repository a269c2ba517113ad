"""Sample traces: small real captures for the demo, and simulated runs with a planted fault.

A scenario is a module that exports `SCENARIO`; adding one edits no file. It knows physics
(durations, dependencies, bytes, clocks) and no detector. Severity 0 is its healthy twin, and the
truth of a saving is the simulator run again without the fault.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.discovery import exported, modules_of
from tracekit.findings import Cause

if TYPE_CHECKING:
    from collections.abc import Iterator

DEMOS = {
    "slow-input": "slow_input_4_ranks",
    "longer-sequences": "longer_sequences_4_ranks",
}
"""Folders of the demo's captures, four gloo ranks each: the loader of rank 2 is slow
(`examples/slow_input.py`); rank 3 gets longer sequences (`examples/ddp.py`, shapes recorded)."""

OF_DUMPS = ("collective-hang", "collective-mismatch")
"""What looks at dumps of flight recorders, which no profiler's trace holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """One finding that a run must yield: its detector, cause, ranks at fault, and what it costs.

    A null saving is not compared: the finding's cure is another change than taking the fault away.
    A note says something about the measurement and is never a warning.
    """

    id: str
    cause: Cause
    ranks: tuple[int, ...] = ()
    saving_ns: float | None = None
    is_note: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What is planted in a run; `skipped` names detectors whose data it does not hold.

    Where calls alone were recorded, `only` names the detectors that they are enough for.
    """

    findings: tuple[Planted, ...] = ()
    skipped: tuple[str, ...] = ()
    only: tuple[str, ...] = ()


def late(rank: int, cause: Cause, saving_ns: float, *others: str) -> Truth:
    """One rank comes late, by what it costs; `others` are detectors that see it as well."""
    planted = Planted(id="straggler-rank", cause=cause, ranks=(rank,), saving_ns=saving_ns)
    seen = (replace(planted, id=name) for name in others)
    return Truth(findings=(planted, *seen))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A simulated run. `build(folder, seed, severity)` writes its traces and returns the truth."""

    id: str
    title: str
    build: Callable[[Path, int, float], Truth]


@cache
def scenarios() -> dict[str, Scenario]:
    """All scenarios by id, in order of id."""
    return exported(modules_of(__name__), "SCENARIO", Scenario)


@contextmanager
def demo_traces(name: str = "slow-input") -> Iterator[Path]:
    """The folder of one of the demo's captures (`DEMOS`)."""
    with as_file(files(__name__) / "data" / DEMOS[name]) as folder:
        yield folder
