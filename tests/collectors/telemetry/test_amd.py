"""Devices of AMD, from a module that answers as AMD SMI 7.0 does."""

from __future__ import annotations

import sys
from enum import IntEnum
from types import ModuleType

import pytest

from tracekit.collectors.telemetry import amd
from tracekit.collectors.telemetry.metrics import UNITS
from tracekit.collectors.telemetry.samples import UnavailableError

NEW, OLD = "new-uuid", "old-uuid"


class AmdSmiException(Exception):  # noqa: N818 - its name in the library
    pass


class Kinds(IntEnum):
    HOTSPOT = 1
    VRAM = 3
    CURRENT = 0
    GFX = 10
    MEM = 14


def not_supported(*_):
    raise AmdSmiException("Error code:\n\t2 | AMDSMI_STATUS_NOT_SUPPORTED - Feature not supported")


@pytest.fixture
def smi(monkeypatch):
    """Two devices: the first gives all, the second power and clocks alone."""
    module = ModuleType("amdsmi")
    rounds = iter(range(0, 10_000, 1000))

    def metrics(handle):
        if handle == OLD:
            return {"accumulation_counter": "N/A", "ppt_residency_acc": "N/A"}
        n = next(rounds)
        # a quarter of all rounds under the limit of power
        return {
            "accumulation_counter": n,
            "ppt_residency_acc": n // 4,
            "socket_thm_residency_acc": 0,
            "prochot_residency_acc": 0,
            "hbm_thm_residency_acc": "N/A",
        }

    used = iter(range(0, 10**10, 10**8))
    module.AmdSmiException = AmdSmiException
    module.AmdSmiTemperatureType = module.AmdSmiTemperatureMetric = module.AmdSmiClkType = Kinds
    module.amdsmi_init = lambda: None
    module.amdsmi_get_processor_handles = lambda: [NEW, OLD]
    module.amdsmi_get_gpu_device_uuid = lambda handle: handle
    module.amdsmi_get_gpu_asic_info = lambda _: {"market_name": "AMD Instinct MI300X"}
    module.amdsmi_get_gpu_device_bdf = lambda _: "0000:05:00.0"
    module.amdsmi_get_gpu_driver_info = lambda _: {"driver_version": "6.12.12"}
    module.amdsmi_get_power_info = lambda handle: (
        {"current_socket_power": 700, "average_socket_power": "N/A"}
        if handle == NEW
        else {"current_socket_power": "N/A", "average_socket_power": 250}
    )
    module.amdsmi_get_temp_metric = lambda handle, kind, _: (
        {Kinds.HOTSPOT: 80, Kinds.VRAM: 60}[kind] if handle == NEW else not_supported()
    )
    module.amdsmi_get_clock_info = lambda _, kind: {
        "clk": 2100 if kind == Kinds.GFX else 1300,
        "max_clk": 2400,
    }
    module.amdsmi_get_gpu_activity = lambda handle: (
        {"gfx_activity": 90, "umc_activity": 40}
        if handle == NEW
        else {"gfx_activity": "N/A", "umc_activity": "N/A"}
    )
    module.amdsmi_get_gpu_vram_usage = lambda handle: (
        {"vram_used": 10} if handle == NEW else not_supported()
    )
    module.amdsmi_get_energy_count = lambda handle: (
        {"energy_accumulator": next(used), "counter_resolution": 15.25}
        if handle == NEW
        else not_supported()
    )
    module.amdsmi_get_gpu_metrics_info = metrics
    monkeypatch.setitem(sys.modules, "amdsmi", module)
    return module


def of(samples, uuid):
    return {sample.metric: sample for sample in samples if sample.device_uuid == uuid}


@pytest.mark.usefixtures("smi")
def test_a_device_gives_points_and_means(tick, values):
    samples = of(amd.opened(None, tick()).read(), NEW)
    assert values(samples.values()) == {
        "power_w": 700,
        "temperature_c": 80,
        "memory_temperature_c": 60,
        "memory_used_bytes": 10 << 20,
        "sm_clock_mhz": 2100,
        "sm_clock_max_mhz": 2400,
        "memory_clock_mhz": 1300,
        "gpu_busy_share": 0.9,
        "memory_busy_share": 0.4,
    }
    power, clock = samples["power_w"], samples["sm_clock_mhz"]
    assert power.start_ns == power.end_ns
    assert clock.end_ns - clock.start_ns == 10**9


@pytest.mark.usefixtures("smi")
def test_energy_and_time_under_a_limit_are_differences(tick):
    source = amd.opened([NEW], tick())
    source.read()
    samples = of(source.read(), NEW)
    # 10**8 counts of 15.25 µJ
    assert samples["energy_j"].value == 1525.0
    limited = samples["throttled_power_s"]
    assert limited.value == (limited.end_ns - limited.start_ns) / 1e9 / 4
    assert samples["throttled_thermal_s"].value == 0
    assert "throttled_memory_thermal_s" not in samples


@pytest.mark.usefixtures("smi")
def test_what_a_device_lacks_is_named_and_never_a_zero(tick, values):
    source = amd.opened([OLD], tick())
    source.read()
    assert values(source.read()) == {
        "power_mean_w": 250,
        "sm_clock_mhz": 2100,
        "sm_clock_max_mhz": 2400,
        "memory_clock_mhz": 1300,
    }
    lacks = {lack.metric: lack.reason for lack in source.lacks}
    assert lacks["temperature_c"].endswith("AMDSMI_STATUS_NOT_SUPPORTED - Feature not supported")
    assert lacks["power_w"] == lacks["throttled_power_s"] == lacks["gpu_busy_share"] == "N/A"
    assert set(lacks) <= set(UNITS)


@pytest.mark.usefixtures("smi")
def test_devices_are_described():
    device = amd.opened([OLD]).devices[0]
    assert (device.uuid, device.index, device.name) == (OLD, 1, "AMD Instinct MI300X")
    assert (device.pci_bus_id, device.driver) == ("0000:05:00.0", "6.12.12")


def test_a_driver_that_does_not_answer_is_a_reason(smi):
    smi.amdsmi_init = not_supported
    with pytest.raises(UnavailableError, match="Error code: 2"):
        amd.opened(None)


def test_no_library_is_a_reason(monkeypatch):
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    with pytest.raises(UnavailableError, match="comes with ROCm"):
        amd.opened(None)


@pytest.mark.usefixtures("smi")
def test_no_such_device_is_a_reason():
    with pytest.raises(UnavailableError, match="none of those asked for"):
        amd.opened(["other"])
