"""Devices through the real binding, and a fake library below it (fake_nvml.c)."""

from __future__ import annotations

import sys

import pynvml
import pytest

from tracekit.collectors.telemetry import nvml
from tracekit.collectors.telemetry.metrics import THROTTLE_REASONS, UNITS
from tracekit.collectors.telemetry.samples import UnavailableError

HOPPER, OLD = "GPU-aaaaaaaa-0000", "GPU-bbbbbbbb-0000"
TENTH_NS = 10**8
DRIVER_NS = 10**18  # the fake driver's clock begins here, in 2001


@pytest.fixture
def source(request, tick):
    """Both devices, sampled each 0.1 s."""
    request.getfixturevalue("fake_nvml")
    return nvml.opened(None, TENTH_NS, tick())


def of(samples, uuid=HOPPER, source=None):
    return {
        sample.metric: sample
        for sample in samples
        if sample.device_uuid == uuid and source in {None, sample.source}
    }


def test_devices_have_their_uuid_place_and_driver(source):
    first, second = source.devices
    assert (first.uuid, first.index, first.name) == (HOPPER, 0, "Fake H100")
    assert (second.pci_bus_id, second.driver) == ("00000000:02:00.0", "560.1")


@pytest.mark.parametrize("wanted", [OLD, "BBBBBBBB-0000"])
@pytest.mark.usefixtures("fake_nvml")
def test_a_device_is_chosen_by_uuid_whatever_stands_before_it(wanted):
    source = nvml.opened([wanted], TENTH_NS)
    assert [device.uuid for device in source.devices] == [OLD]
    assert {sample.device_uuid for sample in source.read()} == {OLD}


def test_a_field_has_the_stamp_of_the_driver(source):
    power = of(source.read())["power_w"]  # the second reading: the first was the look at start
    assert power.end_ns == power.start_ns == DRIVER_NS + TENTH_NS
    assert power.value == 400.001
    assert power.source == "nvml-field"


def test_the_mean_power_holds_for_the_second_before_it(source):
    power = of(source.read())["power_mean_w"]
    assert power.end_ns - power.start_ns == 10**9
    assert power.value == 350.0


def test_a_counter_gives_differences_between_stamps_of_the_driver(source):
    assert "energy_j" not in of(source.read())
    energy = of(source.read())["energy_j"]
    # 40,000 mJ from the second reading to the third, 0.1 s later
    assert energy.value == 40.0
    assert energy.end_ns - energy.start_ns == TENTH_NS
    assert energy.source == "nvml-field"


def test_time_under_a_limit_is_in_seconds(source):
    source.read()
    assert of(source.read())["throttled_power_s"].value == 0.02


def test_a_counter_of_32_bits_wraps_without_a_jump(source):
    gains = [of(source.read()).get("pcie_tx_bytes") for _ in range(4)]
    # 2**32 - 1500, 2**32 - 500, 500, 1500
    assert [gain.value for gain in gains[1:]] == [1000, 1000, 1000]


def test_a_reset_gives_no_value(source):
    gains = [of(source.read()).get("nvlink_tx_bytes") for _ in range(5)]
    # readings in KiB: …1000, …2000, …3000, 0 (after a reset), 0; the first is none either
    assert [gain and gain.value for gain in gains] == [None, 1_024_000, 1_024_000, None, 0]


@pytest.mark.usefixtures("fake_nvml")
def test_a_counter_that_can_wrap_unseen_is_left_out():
    source = nvml.opened(None, 10**9)
    (reason,) = [
        lack.reason
        for lack in source.lacks
        if (lack.device_uuid, lack.metric) == (HOPPER, "pcie_tx_bytes")
    ]
    # 2**32 bytes at 16 lanes of 1.969 GB/s
    assert reason == "its counter can wrap in 0.136 s, unseen when sampled each 1 s"
    source.read()
    assert "pcie_tx_bytes" not in of(source.read())


def test_calls_give_points_on_the_clock_of_the_host(source, values):
    samples = of(source.read(), source="nvml")
    assert values(samples.values()) == {
        "temperature_c": 55,
        "sm_clock_mhz": 1980,
        "sm_clock_max_mhz": 1995,
        "memory_clock_mhz": 2619,
        "throttle_reasons": THROTTLE_REASONS["sw_power_cap"],
        "memory_used_bytes": 2000,
        "gpu_busy_share": 0.75,
        "memory_busy_share": 0.25,
    }
    assert samples["temperature_c"].start_ns == samples["temperature_c"].end_ns >= 2 * 10**18
    assert samples["gpu_busy_share"].end_ns - samples["gpu_busy_share"].start_ns == 10**9


def test_reasons_are_a_mask(source):
    mask = of(source.read(), OLD)["throttle_reasons"].value
    names = {name for name, bit in THROTTLE_REASONS.items() if mask & bit}
    assert names == {"sw_power_cap", "hw_thermal_slowdown"}


def test_the_bits_are_those_of_the_binding():
    bits = {
        name: getattr(pynvml, "nvmlClocksEventReason" + name.title().replace("_", ""))
        for name in THROTTLE_REASONS
    }
    assert bits == THROTTLE_REASONS


def test_gpm_gives_means_between_two_readings(source):
    means = of(source.read(), source="nvml-gpm")
    assert means["sm_busy_share"].value == 0.02
    assert means["nvlink_rx_bytes_per_s"].value == 2 << 20
    again = of(source.read(), source="nvml-gpm")
    assert again["sm_busy_share"].start_ns == means["sm_busy_share"].end_ns
    assert again["sm_busy_share"].start_ns < again["sm_busy_share"].end_ns


def test_what_a_device_lacks_is_named_and_never_a_zero(source):
    lacks = {(lack.device_uuid, lack.metric): lack.reason for lack in source.lacks}
    assert lacks[OLD, "energy_j"] == "Not Supported"
    assert lacks[OLD, "sm_busy_share"] == "this device has no GPM: Hopper and newer ones do"
    assert lacks[HOPPER, "fp64_busy_share"] == "Not Supported"
    source.read()
    for uuid in (HOPPER, OLD):
        given = set(of(source.read(), uuid))
        assert given.isdisjoint(metric for owner, metric in lacks if owner == uuid)
    assert set(of(source.read(), OLD)) == {
        "power_w",
        "temperature_c",
        "sm_clock_mhz",
        "sm_clock_max_mhz",
        "memory_clock_mhz",
        "throttle_reasons",
        "memory_used_bytes",
    }


def test_every_metric_is_in_the_vocabulary(source):
    source.read()
    named = {sample.metric for sample in source.read()} | {lack.metric for lack in source.lacks}
    assert named <= set(UNITS)


@pytest.mark.usefixtures("fake_nvml")
def test_a_binding_of_another_version_lacks_what_it_does_not_name(monkeypatch):
    monkeypatch.delattr(pynvml, "NVML_FI_DEV_POWER_INSTANT")
    monkeypatch.delattr(pynvml, "nvmlGpmQueryDeviceSupport")
    source = nvml.opened([HOPPER], TENTH_NS)
    lacks = {lack.metric: lack.reason for lack in source.lacks}
    assert lacks["power_w"] == lacks["sm_busy_share"] == "not in this version of nvidia-ml-py"
    assert "power_mean_w" in of(source.read())


@pytest.mark.usefixtures("fake_nvml")
def test_a_driver_that_knows_no_field_values_leaves_the_calls(monkeypatch):
    def unknown(*_):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetFieldValues", unknown)
    source = nvml.opened([HOPPER], TENTH_NS)
    lacks = {lack.metric: lack.reason for lack in source.lacks}
    assert lacks["power_w"] == "Function Not Found"
    assert "temperature_c" in of(source.read())


def test_a_device_that_is_lost_leaves_the_others(source, monkeypatch):
    real = pynvml.nvmlDeviceGetFieldValues
    calls = iter([pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST), None])

    def lost(*arguments):
        error = next(calls)
        if error:
            raise error
        return real(*arguments)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetFieldValues", lost)
    samples = source.read()
    assert "power_w" not in of(samples)
    assert "power_w" in of(samples, OLD)


@pytest.mark.usefixtures("fake_nvml")
def test_energy_by_call_where_there_is_no_field(tick, monkeypatch):
    monkeypatch.delattr(pynvml, "NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION")
    used_mj = iter([0, 5000, 12_000])
    monkeypatch.setattr(pynvml, "nvmlDeviceGetTotalEnergyConsumption", lambda _: next(used_mj))
    source = nvml.opened([HOPPER], TENTH_NS, tick())
    assert "energy_j" not in {lack.metric for lack in source.lacks}
    source.read()
    energy = of(source.read())["energy_j"]
    assert (energy.value, energy.source) == (7.0, "nvml")


def test_no_driver_is_a_reason(monkeypatch):
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", lambda _: (_ for _ in ()).throw(OSError))
    with pytest.raises(UnavailableError, match="NVML Shared Library Not Found"):
        nvml.opened(None, TENTH_NS)


def test_no_binding_is_a_reason(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(UnavailableError, match="pip install nvidia-ml-py"):
        nvml.opened(None, TENTH_NS)


@pytest.mark.usefixtures("fake_nvml")
def test_no_such_device_is_a_reason():
    with pytest.raises(UnavailableError, match="none of those asked for"):
        nvml.opened(["GPU-cccccccc"], TENTH_NS)
