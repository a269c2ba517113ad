"""Devices of NVIDIA, through NVML."""

from __future__ import annotations

import importlib
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from tracekit.collectors.telemetry import nvml_fields, nvml_gpm
from tracekit.collectors.telemetry.counters import Counters
from tracekit.collectors.telemetry.samples import (
    Device,
    Lack,
    Sample,
    Source,
    UnavailableError,
    is_wanted,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SOURCE = "nvml"
_ENERGY_MOST_MJ_PER_S = 10**7
_UTILIZATION_WINDOW_NS = 10**9
"""NVML means utilization over 1/6 s to 1 s, "depending on the product"."""


def opened(
    wanted: Sequence[str] | None, every_ns: int, now_ns: Callable[[], int] = time.time_ns
) -> Source:
    """The devices of this host, or those of them that are wanted by UUID.

    Raises:
        UnavailableError: there is no binding, no driver, or no such device.
    """
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError as error:
        raise UnavailableError(f"{error}; pip install nvidia-ml-py") from error
    try:
        nvml.nvmlInit()
        found = _devices(nvml, wanted)
    except nvml.NVMLError as error:
        raise UnavailableError(str(error)) from error
    if not found:
        raise UnavailableError("no device, or none of those asked for")
    handles = {device.uuid: handle for device, handle in found}
    counters = Counters()
    reads: list[Callable[[], list[Sample]]] = []
    lacks: list[Lack] = []
    for uuid, handle in handles.items():
        fields, without = nvml_fields.supported(nvml, handle, uuid, every_ns)
        has_energy = any(field.metric == "energy_j" for field in fields)
        calls, failing = _calls(nvml, handle, uuid, has_energy=has_energy)
        lacks += [each for each in (*without, *failing) if each.metric not in calls]
        reads.append(partial(nvml_fields.samples, nvml, handle, uuid, fields, counters, now_ns))
        reads.append(partial(_called, nvml, calls, uuid, counters, now_ns))
    monitors, without_gpm = nvml_gpm.opened(nvml, handles, now_ns)
    reads += [partial(nvml_gpm.samples, nvml, monitor, now_ns) for monitor in monitors]
    return Source(
        id=SOURCE,
        read=partial(_read, nvml, reads),
        devices=tuple(device for device, _ in found),
        lacks=(*lacks, *without_gpm),
    )


def _devices(nvml: Any, wanted: Sequence[str] | None) -> list[tuple[Device, Any]]:
    driver = nvml.nvmlSystemGetDriverVersion()
    found = []
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        uuid = nvml.nvmlDeviceGetUUID(handle)
        if is_wanted(uuid, wanted):
            device = Device(
                uuid=uuid,
                index=index,
                name=nvml.nvmlDeviceGetName(handle),
                pci_bus_id=_text(nvml.nvmlDeviceGetPciInfo(handle).busId),
                driver=driver,
            )
            found.append((device, handle))
    return found


def _text(value: str | bytes) -> str:
    """A member of a struct: bytes or text, by the version of the binding."""
    return value.decode() if isinstance(value, bytes) else value


def _calls(
    nvml: Any, handle: Any, uuid: str, *, has_energy: bool
) -> tuple[dict[str, Callable[[], float]], list[Lack]]:
    """Calls that work, by metric, and why others do not.

    Two names for one metric are an old and a new one: which of them there is depends on the
    driver.
    """
    bound = partial(_bound, nvml, handle)
    candidates: list[tuple[str, Callable[[], float]]] = [
        ("temperature_c", bound("nvmlDeviceGetTemperatureV", nvml.NVML_TEMPERATURE_GPU)),
        ("temperature_c", bound("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU)),
        ("sm_clock_mhz", bound("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM)),
        ("sm_clock_max_mhz", bound("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM)),
        ("memory_clock_mhz", bound("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM)),
        ("throttle_reasons", bound("nvmlDeviceGetCurrentClocksEventReasons")),
        ("throttle_reasons", bound("nvmlDeviceGetCurrentClocksThrottleReasons")),
        ("memory_used_bytes", lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used),
        ("gpu_busy_share", lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100),
        ("memory_busy_share", lambda: nvml.nvmlDeviceGetUtilizationRates(handle).memory / 100),
    ]
    if not has_energy:
        candidates.append(("energy_j", bound("nvmlDeviceGetTotalEnergyConsumption")))
    working: dict[str, Callable[[], float]] = {}
    lacks = []
    for metric, call in candidates:
        if metric in working:
            continue
        try:
            call()
        except (nvml.NVMLError, AttributeError) as error:
            lacks.append(Lack(uuid, metric, str(error)))
        else:
            working[metric] = call
    return working, lacks


def _bound(nvml: Any, handle: Any, name: str, *arguments: Any) -> Callable[[], float]:
    """A call by name; one that the binding lacks fails when it is made."""
    return lambda: getattr(nvml, name)(handle, *arguments)


def _called(
    nvml: Any,
    calls: dict[str, Callable[[], float]],
    uuid: str,
    counters: Counters,
    now_ns: Callable[[], int],
) -> list[Sample]:
    """One sample of each call that answers, all with one stamp: they take some µs each."""
    end_ns = now_ns()
    found = []
    for metric, call in calls.items():
        try:
            value = call()
        except nvml.NVMLError:
            continue
        start_ns = end_ns
        if metric.endswith("_busy_share"):
            start_ns -= _UTILIZATION_WINDOW_NS
        if metric == "energy_j":
            used_mj = int(value)
            gain = counters.gain((uuid, metric), end_ns, used_mj, most_per_s=_ENERGY_MOST_MJ_PER_S)
            if gain is None:
                continue
            start_ns, value = gain.start_ns, gain.value / 1000
        found.append(
            Sample(
                metric=metric,
                value=value,
                start_ns=start_ns,
                end_ns=end_ns,
                source=SOURCE,
                device_uuid=uuid,
            )
        )
    return found


def _read(nvml: Any, reads: list[Callable[[], list[Sample]]]) -> list[Sample]:
    found: list[Sample] = []
    for read in reads:
        try:
            found += read()
        except nvml.NVMLError:  # a device that is reset or lost: the others are read on
            continue
    return found
