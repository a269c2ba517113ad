"""Whether a time service keeps this host's clock right, and how far off it says the clock is."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.collectors.preflight import Answer, Check, Group, Machine, State
from tracekit.collectors.preflight._programs import Silent, output

if TYPE_CHECKING:
    from collections.abc import Iterator

STA_UNSYNC = 0x40
"""Linux, uapi/linux/timex.h: nobody has set the clock by another one lately."""
FAST_SOURCES = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page")
"""Those that are read without a call into the kernel."""
N_OF_OFFSET, N_OF_LEAP = 4, 13
"""Fields of `chronyc -c tracking`: the clock's offset in s, and its state."""
FIX = "Start chrony or another time service on the host; offsets are measured all the same"


class Timex(ctypes.Structure):
    """Linux, uapi/linux/timex.h: struct timex, with room for what is not read."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_long * 32),
    )


@dataclass(frozen=True, slots=True)
class Discipline:
    """What the kernel knows of its clock."""

    is_kept: bool
    error_us: int


def discipline() -> Discipline:
    """The kernel's state of the clock, without changing it.

    Raises:
        OSError: the kernel, or a filter of system calls, refuses.
    """
    asked = Timex(modes=0)
    if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(asked)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return Discipline(is_kept=not asked.status & STA_UNSYNC, error_us=asked.esterror)


def _look(machine: Machine) -> Iterator[Answer]:
    answer = _chrony(machine) or _kernel() or _systemd(machine)
    yield answer or Answer(
        Group.RECORD, State.NOTE, "Nothing here says whether the clock is kept right.", FIX
    )
    path = machine.sysfs / "devices/system/clocksource/clocksource0/current_clocksource"
    if path.exists() and (source := path.read_text("ascii").strip()) not in FAST_SOURCES:
        text = f"The clock source is {source}: each time stamp of the profiler is a system call."
        yield Answer(Group.RECORD, State.NOTE, text, "Boot the host with clocksource=tsc")


def _chrony(machine: Machine) -> Answer | None:
    try:
        fields = output(machine, "chronyc", "-c", "tracking").strip().split(",")
        offset_us = abs(float(fields[N_OF_OFFSET])) * 1e6
        is_kept = fields[N_OF_LEAP] != "Not synchronised"
    except (Silent, IndexError, ValueError):
        return None
    if not is_kept:
        return Answer(Group.RECORD, State.NOTE, "chrony does not keep the clock right.", FIX)
    text = f"chrony keeps the clock to within {offset_us:.1f} µs of its source."
    return Answer(Group.RECORD, State.OK, text)


def _kernel() -> Answer | None:
    try:
        known = discipline()
    except (OSError, AttributeError):  # not Linux
        return None
    if not known.is_kept:
        text = "The kernel says that no time service keeps the clock right."
        return Answer(Group.RECORD, State.NOTE, text, FIX)
    text = f"A time service keeps the clock; the kernel expects {known.error_us} µs of error."
    return Answer(Group.RECORD, State.OK, text)


def _systemd(machine: Machine) -> Answer | None:
    try:
        said = output(machine, "timedatectl", "show", "--property=NTPSynchronized", "--value")
    except Silent:
        return None
    if said.strip() != "yes":
        return Answer(Group.RECORD, State.NOTE, "systemd does not keep the clock right.", FIX)
    return Answer(Group.RECORD, State.OK, "systemd keeps the clock right.")


CHECK = Check(id="clock-discipline", look=_look)
