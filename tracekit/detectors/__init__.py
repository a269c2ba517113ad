"""Detectors: one module per finding, found by their `DETECTOR`; adding one edits no file."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from tracekit.config import Config, limits_for
from tracekit.detectors._cures import Cure
from tracekit.discovery import exported, modules_of
from tracekit.errors import TracekitError
from tracekit.findings import Finding, Published, Status
from tracekit.schema import FURTHER, Table
from tracekit.store import Run

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """One question put to a run.

    `min_ranks` is how many ranks it compares at least.
    `title` is its name when something is found, `clear` when not (shown with the measured value).
    `needs` are raw tables without which it is skipped, unless the run has the table `instead`;
    `how` says how to record them. `detect` returns one finding per culprit, at least one; a saving
    is at most that of `bounded_by`. `cure` makes the job without what was found: its replay gives
    the saving, or, where `is_bound`, only the most that it can be. `published` are systems that
    were built against what it finds.
    """

    id: str
    title: str
    clear: str
    needs: tuple[Table, ...]
    how: str
    instead: Table | None = None
    min_ranks: int = 1
    limits: type
    detect: Callable[[Run, Any], tuple[Finding, ...]]
    bounded_by: str | None = None
    cure: Cure | None = None
    is_bound: bool = False
    published: tuple[Published, ...] = ()


@cache
def detectors() -> dict[str, Detector]:
    """All detectors by id, in order of id: those of this package and of installed plug-ins."""
    plugins = entry_points(group="tracekit.detectors")
    modules = [*modules_of(__name__), *(import_module(entry.value) for entry in plugins)]
    return exported(modules, "DETECTOR", Detector)


def findings_of(detector: Detector, run: Run, config: Config) -> tuple[Finding, ...]:
    """What a detector finds; skipped without its tables, failed where it raises.

    Raises:
        TracekitError: the configuration names a limit that does not exist.
    """
    limits: object = limits_for(detector.id, detector.limits, config)
    why = why_not(detector, run, len(run.ranks))
    if why:
        is_further = bool(detector.needs) and set(detector.needs) <= set(FURTHER)
        return (skipped(detector, why, is_of_further_source=is_further),)
    try:
        return detector.detect(run, limits)
    except TracekitError:
        raise
    except Exception as error:
        log.warning("%s failed: %s", detector.id, error, exc_info=log.isEnabledFor(logging.DEBUG))
        where = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
        why = f"{what}; please report it"
        return (finding(detector, Status.FAILED, title=detector.title, why=why),)


def why_not(detector: Detector, run: Run, n_ranks: int) -> str:
    """Why a detector cannot run, with how to record what it lacks; empty where it can."""
    has_instead = detector.instead is not None and run.n_rows(detector.instead.name) > 0
    missing = [
        table.name for table in detector.needs if run.n_rows(table.name) == 0 and not has_instead
    ]
    if missing:
        return f"the traces hold no {' and no '.join(missing)}. {detector.how}"
    if n_ranks < detector.min_ranks:
        if n_ranks == 1:
            return "one rank: nobody to compare it with. Record all ranks of the job."
        least = f"it compares at least {detector.min_ranks}"
        return f"{n_ranks} ranks: {least}. Record all ranks of the job."
    return ""


def finding(detector: Detector, status: Status, *, subject: str = "run", **fields: Any) -> Finding:
    """A finding of a detector; its title says that all is well unless `fields` say otherwise."""
    return Finding(
        **{
            "id": detector.id,
            "subject": subject,
            "status": status,
            "title": detector.clear,
            **fields,
        }
    )


def skipped(detector: Detector, why: str, *, is_of_further_source: bool = False) -> Finding:
    """A finding that says which data would settle the question and how to record them."""
    return finding(detector, Status.SKIPPED, why=why, is_of_further_source=is_of_further_source)


def rank_list(ranks: list[int]) -> str:
    """Ranks as a title names them: the first four."""
    return ", ".join(map(str, ranks[:4])) + (", …" if len(ranks) > 4 else "")


def number(value: object) -> float:
    """A mean, sum or maximum of a column as a float; 0 where there was no row."""
    return float(value) if isinstance(value, int | float) else 0.0
