"""Other programs that hold the performance counters, as the telemetry's own list knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.collectors.preflight import Answer, Check, Group, Machine, State
from tracekit.collectors.telemetry.holders import holders

if TYPE_CHECKING:
    from collections.abc import Iterator


def _look(machine: Machine) -> Iterator[Answer]:
    found = holders(machine.proc, machine.environment)
    for holder in found:
        name = holder.name if holder.pid is None else f"{holder.name} (process {holder.pid})"
        text = f"{name} may hold the performance counters. {holder.breaks}"
        yield Answer(Group.CONFLICT, State.PROBLEM, text, holder.fix)
    if not found:
        text = "No program that is seen from here holds the performance counters."
        yield Answer(Group.CONFLICT, State.OK, text)


CHECK = Check(id="counter-holders", look=_look)
