"""What can be recorded on this machine, what stands in the way, and which variables to set.

One module for each kind of check, found by `CHECK`; adding one edits no file. What a check looks
at is given to it, so nothing here reads the environment or `/proc` on its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from tracekit.discovery import exported, modules_of


class Group(StrEnum):
    """Where an answer stands on the page."""

    RECORD = "can record"
    CONFLICT = "conflicts"
    SET = "set these"


class State(StrEnum):
    """Whether there is something to do; only a problem prevents recording."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the checks look at. The Python is the one that the job runs in."""

    environment: Mapping[str, str]
    run_folder: Path | None = None
    python: str = sys.executable
    proc: Path = Path("/proc")
    sysfs: Path = Path("/sys")
    dev: Path = Path("/dev")


@dataclass(frozen=True, slots=True)
class Answer:
    """One sentence on one thing, and what to do about it: a command or a setting."""

    group: Group
    state: State
    text: str
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One kind of check: `look` may raise, which is then the answer."""

    id: str
    look: Callable[[Machine], Iterable[Answer]]


@cache
def checks() -> dict[str, Check]:
    """All checks by id, in order of id."""
    return exported(modules_of(__name__), "CHECK", Check)


def answers(machine: Machine) -> dict[str, tuple[Answer, ...]]:
    """What each check says, by its id; one that fails says so."""
    return {check.id: _answers(check, machine) for check in checks().values()}


def _answers(check: Check, machine: Machine) -> tuple[Answer, ...]:
    try:
        return tuple(check.look(machine))
    except Exception as error:  # noqa: BLE001 - one check that fails must not hide the others
        text = f"The check {check.id} itself failed: {type(error).__name__}: {error}."
        return (Answer(Group.CONFLICT, State.NOTE, text),)


__all__ = ["Answer", "Check", "Group", "Machine", "State", "answers", "checks"]
