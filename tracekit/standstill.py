"""Where a job stands by the dumps of its flight recorders: plain data, group by group."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupProgress:
    """How far the members of one group got with its collectives.

    `last_called` and `last_ended` are the highest numbers of any member, null where nothing is
    known. `behind` are the ranks that called least, if others called more, `calls_behind` how many
    fewer (null: of one it is not known how many), `behind_ns` how long before the latest call of
    the group theirs was. `in_call` is the first call that has not ended ("all_reduce 730"),
    `n_waiting` how many members are in it.
    """

    group: str
    description: str | None
    n_members: int | None
    n_dumps: int
    last_called: int | None
    last_ended: int | None
    behind: tuple[int, ...]
    calls_behind: int | None
    behind_ns: int | None
    in_call: str | None
    n_waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Standstill:
    """All groups, those with most calls behind first; `wrapped` are ranks whose ring wrapped."""

    groups: tuple[GroupProgress, ...]
    n_groups: int
    wrapped: tuple[int, ...]
