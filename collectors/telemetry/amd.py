"""Devices of AMD, through the Python interface of AMD SMI.

It names what a device lacks by an exception, by "N/A", or by nothing at all, depending on the call
and its version: each of them means that there is no value.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

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
    from collections.abc import Iterator, Sequence

SOURCE = "amdsmi"
_ENERGY_MOST_UJ_PER_S = 10**10
_UJ_PER_J = 10**6
_BYTES_PER_MB = 1 << 20  # amdsmi.h says MB, the library divides by 1024 twice
_MEAN_WINDOW_NS = 10**9  # of clocks "averages over 1s" in amdsmi.h, which says nothing of others
_COUNTS_MOST_PER_S = 10**6
_RESIDENCIES = {
    "throttled_power_s": "ppt_residency_acc",
    "throttled_thermal_s": "socket_thm_residency_acc",
    "throttled_hw_thermal_s": "prochot_residency_acc",
    "throttled_memory_thermal_s": "hbm_thm_residency_acc",
    "throttled_regulator_thermal_s": "vr_thm_residency_acc",
}
"""Counts of the firmware's rounds in which a limit held; `accumulation_counter` counts them all."""


@dataclass(slots=True)
class _Reading:
    """One device, and the last readings of its counters."""

    smi: Any
    handle: Any
    uuid: str
    now_ns: Callable[[], int]
    counters: Counters = field(default_factory=Counters)


def opened(wanted: Sequence[str] | None, now_ns: Callable[[], int] = time.time_ns) -> Source:
    """The devices of this host, or those of them that are wanted by UUID.

    Raises:
        UnavailableError: there is no library, no driver, or no such device.
    """
    try:
        smi = importlib.import_module("amdsmi")
    except Exception as error:  # the binding raises whatever its search for the library ran into
        raise UnavailableError(f"{error}; it comes with ROCm") from error
    try:
        smi.amdsmi_init()
        found = [
            (device, handle)
            for index, handle in enumerate(smi.amdsmi_get_processor_handles())
            if is_wanted((device := _device(smi, handle, index)).uuid, wanted)
        ]
    except smi.AmdSmiException as error:
        raise UnavailableError(_message(error)) from error
    if not found:
        raise UnavailableError("no device, or none of those asked for")
    readings = [_Reading(smi, handle, device.uuid, now_ns) for device, handle in found]
    return Source(
        id=SOURCE,
        read=lambda: [sample for reading in readings for sample in _samples(reading)],
        devices=tuple(device for device, _ in found),
        lacks=tuple(lack for reading in readings for lack in _lacks(reading)),
    )


def _device(smi: Any, handle: Any, index: int) -> Device:
    return Device(
        uuid=smi.amdsmi_get_gpu_device_uuid(handle),
        index=index,
        name=smi.amdsmi_get_gpu_asic_info(handle)["market_name"],
        pci_bus_id=smi.amdsmi_get_gpu_device_bdf(handle),
        driver=smi.amdsmi_get_gpu_driver_info(handle)["driver_version"],
    )


def _points(reading: _Reading) -> dict[str, Callable[[], Any]]:
    """Calls that give a value at once, by metric."""
    smi, handle = reading.smi, reading.handle
    now = smi.AmdSmiTemperatureMetric.CURRENT
    kinds, clocks = smi.AmdSmiTemperatureType, smi.AmdSmiClkType
    return {
        "power_w": lambda: smi.amdsmi_get_power_info(handle)["current_socket_power"],
        "temperature_c": lambda: smi.amdsmi_get_temp_metric(handle, kinds.HOTSPOT, now),
        "sm_clock_max_mhz": lambda: smi.amdsmi_get_clock_info(handle, clocks.GFX)["max_clk"],
        "memory_temperature_c": lambda: smi.amdsmi_get_temp_metric(handle, kinds.VRAM, now),
        "memory_used_bytes": lambda: (
            smi.amdsmi_get_gpu_vram_usage(handle)["vram_used"] * _BYTES_PER_MB
        ),
    }


def _means(reading: _Reading) -> dict[str, Callable[[], Any]]:
    """Calls that give a mean over about a second, by metric."""
    smi, handle = reading.smi, reading.handle
    kinds = smi.AmdSmiClkType
    return {
        "power_mean_w": lambda: smi.amdsmi_get_power_info(handle)["average_socket_power"],
        "sm_clock_mhz": lambda: smi.amdsmi_get_clock_info(handle, kinds.GFX)["clk"],
        "memory_clock_mhz": lambda: smi.amdsmi_get_clock_info(handle, kinds.MEM)["clk"],
        "gpu_busy_share": lambda: smi.amdsmi_get_gpu_activity(handle)["gfx_activity"] / 100,
        "memory_busy_share": lambda: smi.amdsmi_get_gpu_activity(handle)["umc_activity"] / 100,
    }


def _samples(reading: _Reading) -> Iterator[Sample]:
    for window_ns, calls in ((0, _points(reading)), (_MEAN_WINDOW_NS, _means(reading))):
        for metric, call in calls.items():
            value = _number(reading.smi, call)
            if isinstance(value, int | float):
                at_ns = reading.now_ns()
                yield _sample(reading, metric, value, at_ns - window_ns, at_ns)
    yield from _energy(reading)
    yield from _throttled(reading)


def _energy(reading: _Reading) -> Iterator[Sample]:
    at_ns = reading.now_ns()
    energy = _answer(reading.smi, lambda: reading.smi.amdsmi_get_energy_count(reading.handle))
    if isinstance(energy, dict):
        used_uj = int(energy["energy_accumulator"] * energy["counter_resolution"])
        gain = reading.counters.gain("energy", at_ns, used_uj, most_per_s=_ENERGY_MOST_UJ_PER_S)
        if gain:
            yield _sample(reading, "energy_j", gain.value / _UJ_PER_J, gain.start_ns, at_ns)


def _throttled(reading: _Reading) -> Iterator[Sample]:
    """Time under each limit since the reading before: its share of the firmware's rounds.

    amdsmi_get_violation_status gives the same, but sleeps 100 ms in each call.
    """
    at_ns = reading.now_ns()
    metrics = _answer(reading.smi, lambda: reading.smi.amdsmi_get_gpu_metrics_info(reading.handle))
    if not isinstance(metrics, dict):
        return
    gains = {
        name: reading.counters.gain(name, at_ns, value, most_per_s=_COUNTS_MOST_PER_S)
        for name in ("accumulation_counter", *_RESIDENCIES.values())
        if isinstance(value := metrics.get(name), int)
    }
    rounds = gains.get("accumulation_counter")
    if rounds is None or not rounds.value:
        return
    elapsed_s = (at_ns - rounds.start_ns) / 1e9
    for metric, name in _RESIDENCIES.items():
        gain = gains.get(name)
        if gain:
            value_s = elapsed_s * min(1.0, gain.value / rounds.value)
            yield _sample(reading, metric, value_s, rounds.start_ns, at_ns)


def _lacks(reading: _Reading) -> Iterator[Lack]:
    """Metrics that do not come at a first try, and why."""
    smi, handle = reading.smi, reading.handle
    calls: dict[str, Callable[[], Any]] = {
        **_points(reading),
        **_means(reading),
        "energy_j": lambda: smi.amdsmi_get_energy_count(handle)["energy_accumulator"],
        **{metric: partial(_residency, smi, handle, name) for metric, name in _RESIDENCIES.items()},
    }
    for metric, call in calls.items():
        value = _number(smi, call)
        if isinstance(value, str):
            yield Lack(reading.uuid, metric, value)


def _residency(smi: Any, handle: Any, name: str) -> Any:
    return smi.amdsmi_get_gpu_metrics_info(handle)[name]


def _number(smi: Any, call: Callable[[], Any]) -> int | float | str:
    """What a call gives, or as text why that is no number."""
    value = _answer(smi, call)
    return value if isinstance(value, int | float | str) else f"{value!r} is no number"


def _answer(smi: Any, call: Callable[[], Any]) -> Any:
    """What a call gives, or as text why it gives nothing."""
    try:
        return call()
    except smi.AmdSmiException as error:
        return _message(error)
    except (KeyError, TypeError, AttributeError):  # "N/A" / 100, or a name of another version
        return "N/A"


def _message(error: Exception) -> str:
    """A message of AMD SMI, which spreads over lines."""
    return " ".join(str(error).split())


def _sample(reading: _Reading, metric: str, value: float, start_ns: int, end_ns: int) -> Sample:
    return Sample(
        metric=metric,
        value=value,
        start_ns=start_ns,
        end_ns=end_ns,
        source=SOURCE,
        device_uuid=reading.uuid,
    )
