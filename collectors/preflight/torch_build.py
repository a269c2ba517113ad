"""What the installed torch can record; it is imported in another process, which may hang or die."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tracekit.collectors.preflight import Answer, Check, Group, Machine, State
from tracekit.collectors.preflight._programs import Silent, said_by_python
from tracekit.collectors.preflight.devices import devices

if TYPE_CHECKING:
    from collections.abc import Iterator

IMPORT_TIMEOUT_S = 120.0
"""From a cold network file system the import takes most of a minute."""

OPTIONS = {
    "enable_cuda_sync_events": "which stream waits for which",
    "record_python_gc_info": "collections of garbage by generation, with Python stacks",
}
"""Options of torch.profiler._ExperimentalConfig, and what they record."""

_PROGRAM = """
import importlib.util, json
if importlib.util.find_spec("torch") is None:
    said = None
else:
    import torch, torch.profiler
    said = {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "xpu": getattr(torch.version, "xpu", None),
        "kineto": torch.profiler.kineto_available(),
        "activities": sorted(each.name for each in torch.profiler.supported_activities()),
        "options": "",
    }
    try:
        from torch._C._profiler import _ExperimentalConfig
        said["options"] = _ExperimentalConfig.__init__.__doc__ or ""
    except ImportError:
        pass
print(json.dumps(said))
"""


def _look(machine: Machine) -> Iterator[Answer]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Answer(Group.RECORD, State.OK, f"Python is {version}.")
    try:
        said = said_by_python(machine, _PROGRAM, IMPORT_TIMEOUT_S)
    except Silent as error:
        text = f"torch cannot be imported, so no training job can run: {error}."
        fix = f"Repair it until this works: {machine.python} -c 'import torch'"
        yield Answer(Group.RECORD, State.PROBLEM, text, fix)
        return
    if said is None:
        text = "torch is not in this Python: traces can be analysed, but no job recorded."
        fix = "Run the doctor with the Python of the job"
        yield Answer(Group.RECORD, State.NOTE, text, fix)
        return
    yield from _build(said, n_devices=len(devices(machine)))
    yield from _options(said)


def _build(said: dict[str, Any], n_devices: int) -> Iterator[Answer]:
    names = {"CUDA": said["cuda"], "ROCm": said["hip"], "XPU": said["xpu"]}
    built_for = [f"{name} {version}" for name, version in names.items() if version]
    text = f"torch is {said['version']}, built for {' and '.join(built_for) or 'the CPU'}."
    yield Answer(Group.RECORD, State.OK, text)
    if not said["kineto"]:
        text = "This torch is built without Kineto: its profiler writes no traces."
        fix = "Install a build that has it, from https://pytorch.org/get-started"
        yield Answer(Group.RECORD, State.PROBLEM, text, fix)
        return
    on_devices = [name for name in said["activities"] if name != "CPU"]
    if on_devices:
        text = f"The profiler records the CPU and {', '.join(on_devices)}."
        yield Answer(Group.RECORD, State.OK, text)
    elif n_devices:
        text = f"The profiler records the CPU alone, and this machine has {n_devices} GPUs."
        fix = "Install torch for CUDA or ROCm, from https://pytorch.org/get-started"
        yield Answer(Group.RECORD, State.PROBLEM, text, fix)
    else:
        text = "The profiler records the CPU alone, as this torch is built for no device."
        yield Answer(Group.RECORD, State.NOTE, text)


def _options(said: dict[str, Any]) -> Iterator[Answer]:
    for name, what in OPTIONS.items():
        if f"{name}:" in said["options"]:
            yield Answer(Group.RECORD, State.OK, f"{name} is known: it records {what}.")
        else:
            text = f"{name} is unknown to this torch: traces do not hold {what}."
            yield Answer(Group.RECORD, State.NOTE, text, "Use a newer torch to have it")


CHECK = Check(id="torch-build", look=_look)
