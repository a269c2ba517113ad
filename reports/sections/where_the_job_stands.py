"""Where the job stands: how far the members of each group got, by their flight recorders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Column
from tracekit.reports.components import counted, note, table
from tracekit.units import Unit

if TYPE_CHECKING:
    from markupsafe import Markup

    from tracekit.results import Result
    from tracekit.standstill import GroupProgress

ORDER = 12
TITLE = "Where the job stands"

MAX_RANKS = 8
HOW_TO_READ = (
    "A row is a process group, those with most calls between the first and the last member first. "
    "Ranks behind called least; a call that some members are in and others never made waits for "
    "those. Numbers count the collectives of a group from the start of the job."
)
COLUMNS = (
    Column("Group"),
    Column("For"),
    Column("In call"),
    Column("Ranks in it", Unit.COUNT),
    Column("Ranks behind"),
    Column("Calls behind", Unit.COUNT),
    Column("Time behind", Unit.NS),
    Column("Last called"),
    Column("Last ended"),
    Column("Dumps of members"),
)


def render(result: Result, /) -> Markup | None:
    """The table of groups; None without dumps."""
    stands = result.standstill
    if stands is None or not stands.groups:
        return None
    more = ""
    if stands.n_groups > len(stands.groups):
        more += f" Shown: {len(stands.groups)} of {stands.n_groups:,} groups."
    if stands.wrapped:
        more += (
            f" The rings of {counted(len(stands.wrapped), 'rank')} wrapped "
            f"({_ranks(stands.wrapped)}): their oldest calls are gone; record more with "
            "TORCH_FR_BUFFER_SIZE."
        )
    rows = [_row(each) for each in stands.groups]
    return note(HOW_TO_READ + more) + table("Progress of the groups", COLUMNS, rows)


def _row(each: GroupProgress) -> tuple[str | int | None, ...]:
    return (
        each.group,
        each.description,
        each.in_call,
        each.n_waiting or None,
        _ranks(each.behind) or None,
        each.calls_behind or None,
        each.behind_ns,
        each.last_called,
        each.last_ended,
        str(each.n_dumps) if each.n_members is None else f"{each.n_dumps} of {each.n_members}",
    )


def _ranks(ranks: tuple[int, ...]) -> str:
    return ", ".join(map(str, ranks[:MAX_RANKS])) + (", …" if len(ranks) > MAX_RANKS else "")
