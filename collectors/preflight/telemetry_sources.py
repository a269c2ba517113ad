"""The libraries that samples of devices and host come from, and how to get those that miss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.collectors.preflight import Answer, Check, Group, Machine, State
from tracekit.collectors.preflight._programs import Silent, said_by_python
from tracekit.collectors.preflight.devices import AMD, NVIDIA, devices

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT_S = 20.0
INSTALL = "pip install 'tracekit-gpu[telemetry]'"
INSTALL_AMD = "pip install amdsmi, of the version of ROCm"
SHOW = "docker run --gpus all --env NVIDIA_DRIVER_CAPABILITIES=compute,utility"
SHOW_AMD = "docker run --device /dev/kfd --device /dev/dri"

_PROGRAM = """
import json
def devices_of(name, count):
    try:
        return count(__import__(name))
    except ImportError:
        return "not installed"
    except Exception as error:
        return str(error) or type(error).__name__
def of_nvml(nvml):
    nvml.nvmlInit()
    return nvml.nvmlDeviceGetCount()
def of_amd(smi):
    smi.amdsmi_init()
    return len(smi.amdsmi_get_processor_handles())
print(json.dumps({
    "NVML": devices_of("pynvml", of_nvml),
    "amdsmi": devices_of("amdsmi", of_amd),
    "psutil": devices_of("psutil", lambda psutil: psutil.cpu_count() or 0),
}))
"""


def _look(machine: Machine) -> Iterator[Answer]:
    try:
        said = said_by_python(machine, _PROGRAM, TIMEOUT_S)
    except Silent as error:
        text = f"Neither devices nor host can be sampled: {error}."
        yield Answer(Group.RECORD, State.NOTE, text, f"Try: {INSTALL}")
        return
    vendors = {device.vendor for device in devices(machine)}
    yield from _of_devices("NVML", said["NVML"], (INSTALL, SHOW), is_wanted=NVIDIA in vendors)
    yield from _of_devices(
        "amdsmi", said["amdsmi"], (INSTALL_AMD, SHOW_AMD), is_wanted=AMD in vendors
    )
    if isinstance(said["psutil"], int):
        yield Answer(Group.RECORD, State.OK, "psutil samples the processes of the host.")
    else:
        text = f"psutil does not sample the processes of the host: {said['psutil']}."
        yield Answer(Group.RECORD, State.NOTE, text, INSTALL)


def _of_devices(
    name: str, said: Any, fixes: tuple[str, str], *, is_wanted: bool
) -> Iterator[Answer]:
    """Said of a vendor whose devices are here, or whose library finds some.

    The fixes are for a library that is missing, and for one that finds nothing.
    """
    if isinstance(said, int) and said > 0:
        yield Answer(Group.RECORD, State.OK, f"{name} samples {said} devices.")
    elif is_wanted:
        why = "it finds no device" if isinstance(said, int) else said
        fix = fixes[0] if why == "not installed" else fixes[1]
        yield Answer(Group.RECORD, State.NOTE, f"{name} samples no device: {why}.", fix)


CHECK = Check(id="telemetry-sources", look=_look)
