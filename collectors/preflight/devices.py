"""The devices of this machine, by UUID: the name that no setting of the job renumbers."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.collectors.preflight import Answer, Check, Group, Machine, State
from tracekit.collectors.preflight._programs import Missing, Silent, output

if TYPE_CHECKING:
    from collections.abc import Iterator

NVIDIA, AMD = "NVIDIA", "AMD"
LIST = ("nvidia-smi", "-L")


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU as its driver names it."""

    vendor: str
    name: str
    uuid: str


def devices(machine: Machine) -> tuple[Device, ...]:
    """What drivers list in /proc and /sys; only where NVIDIA's lists none, its program is asked."""
    return (*_nvidia(machine), *_amd(machine))


def _nvidia(machine: Machine) -> Iterator[Device]:
    paths = sorted((machine.proc / "driver/nvidia/gpus").glob("*/information"))
    for path in paths:
        lines = path.read_text("utf-8", "replace").splitlines()
        parts = [line.partition(":") for line in lines]
        fields = {name.strip(): value.strip() for name, _, value in parts}
        yield Device(NVIDIA, fields.get("Model", "NVIDIA GPU"), fields.get("GPU UUID", "unknown"))
    if not paths:
        with suppress(Silent):
            listed = output(machine, *LIST)
            for name, uuid in re.findall(r"^GPU \d+: (.+) \(UUID: (\S+)\)", listed, re.MULTILINE):
                yield Device(NVIDIA, name, uuid)


def _amd(machine: Machine) -> Iterator[Device]:
    for path in sorted((machine.sysfs / "class/kfd/kfd/topology/nodes").glob("*/properties")):
        fields = dict(
            re.findall(r"^(\w+) (\d+)$", path.read_text("ascii", "replace"), re.MULTILINE)
        )
        if int(fields.get("simd_count", 0)) == 0:
            continue  # a CPU
        name = "of an unknown kind"
        with suppress(OSError):
            name = (path.parent / "name").read_text("ascii", "replace").strip() or name
        yield Device(AMD, f"AMD GPU {name}", f"GPU-{int(fields.get('unique_id', 0)):016x}")


def _look(machine: Machine) -> Iterator[Answer]:
    found = devices(machine)
    for device in found:
        yield Answer(Group.RECORD, State.OK, f"{device.name} is there: {device.uuid}.")
    if not found:
        text = "No NVIDIA or AMD device is seen here: only the host can be recorded."
        fix = "Run it where the job runs: srun tracekit doctor, docker run --gpus all"
        yield Answer(Group.RECORD, State.NOTE, text, fix)
    if any(device.vendor == NVIDIA for device in found):
        yield from _driver(machine)


def _driver(machine: Machine) -> Iterator[Answer]:
    """Whether the part of NVIDIA's driver that programs talk to fits the one in the kernel."""
    try:
        output(machine, *LIST)
    except Missing:
        return  # in containers it often is
    except Silent as error:
        text = f"The NVIDIA driver does not answer: {str(error).rstrip('.')}."
        fix = "Restart the host, or install the library version of the kernel's driver"
        yield Answer(Group.RECORD, State.PROBLEM, text, fix)


CHECK = Check(id="devices", look=_look)
