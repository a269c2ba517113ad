"""Field values of NVML: one call reads them all, and the driver says when each one was.

That stamp is stored, not the time of the call: some values are many ms old when they are read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tracekit.collectors.telemetry.samples import Lack, Sample

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.collectors.telemetry.counters import Counters

SOURCE = "nvml-field"
_ALL_LINKS = 0xFFFF_FFFF
_NS_PER_US = 1000
_NS_PER_S = 10**9
_NVLINK_MOST_KIB_PER_S = 2**32  # 4.4 TB/s: more than the links of any device
_PCIE_MOST_BYTES_PER_S = 128 * 10**9  # 16 lanes of the 6th generation
_PCIE_LANE_MBYTES_PER_S = (250, 500, 985, 1969, 3938, 7563)  # first to sixth generation
_BITS = {1: 32, 2: 64, 3: 64, 6: 16}
"""Width of the unsigned types of nvmlValueType_t."""
_VALUES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Member of nvmlValue_t for each nvmlValueType_t."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field: its metric, its name after `NVML_FI_DEV_`, and value * factor / divisor of it.

    A field with `window_ns` is a mean over that much time; one with `most_per_s` is a counter, and
    gains at most that much of its own unit.
    """

    metric: str
    name: str
    scope: int = 0
    factor: int = 1
    divisor: int = 1
    window_ns: int = 0
    most_per_s: int = 0


def _time(metric: str, name: str) -> Field:
    # Counters of ns: twice a second's worth allows for stamps that are not quite those of the value
    return Field(metric=metric, name=name, divisor=_NS_PER_S, most_per_s=2 * _NS_PER_S)


def _nvlink(metric: str, name: str) -> Field:
    most_per_s = _NVLINK_MOST_KIB_PER_S
    return Field(metric=metric, name=name, scope=_ALL_LINKS, factor=1024, most_per_s=most_per_s)


FIELDS = (
    Field(metric="power_w", name="POWER_INSTANT", divisor=1000),
    Field(metric="power_mean_w", name="POWER_AVERAGE", divisor=1000, window_ns=_NS_PER_S),
    Field(metric="memory_temperature_c", name="MEMORY_TEMP"),
    Field(
        metric="energy_j",
        name="TOTAL_ENERGY_CONSUMPTION",
        divisor=1000,
        most_per_s=10**7,  # mJ: 10 kW
    ),
    _nvlink("nvlink_tx_bytes", "NVLINK_THROUGHPUT_DATA_TX"),
    _nvlink("nvlink_rx_bytes", "NVLINK_THROUGHPUT_DATA_RX"),
    Field(metric="pcie_tx_bytes", name="PCIE_COUNT_TX_BYTES", most_per_s=_PCIE_MOST_BYTES_PER_S),
    Field(metric="pcie_rx_bytes", name="PCIE_COUNT_RX_BYTES", most_per_s=_PCIE_MOST_BYTES_PER_S),
    Field(metric="pcie_replays_count", name="PCIE_REPLAY_COUNTER", most_per_s=10**6),
    _time("throttled_power_s", "PERF_POLICY_POWER"),
    _time("throttled_thermal_s", "PERF_POLICY_THERMAL"),
    _time("throttled_sync_boost_s", "PERF_POLICY_SYNC_BOOST"),
    _time("throttled_board_limit_s", "PERF_POLICY_BOARD_LIMIT"),
    _time("throttled_reliability_s", "PERF_POLICY_RELIABILITY"),
    _time("throttled_sw_thermal_s", "CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN"),
    _time("throttled_hw_thermal_s", "CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN"),
    _time("throttled_hw_power_brake_s", "CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN"),
)


def supported(
    nvml: Any, handle: Any, uuid: str, every_ns: int
) -> tuple[tuple[Field, ...], tuple[Lack, ...]]:
    """The fields that a device gives at this period, and why it does not give the others."""
    known = [_of_link(nvml, handle, each) for each in FIELDS if hasattr(nvml, _constant(each))]
    found: list[Field] = []
    lacks = [
        Lack(uuid, each.metric, "not in this version of nvidia-ml-py")
        for each in FIELDS
        if not hasattr(nvml, _constant(each))
    ]
    try:
        values = _values(nvml, handle, known)
    except nvml.NVMLError as error:
        return (), (*lacks, *(Lack(uuid, each.metric, str(error)) for each in known))
    for each, value in zip(known, values, strict=True):
        reason = _reason(nvml, each, value, every_ns)
        if reason:
            lacks.append(Lack(uuid, each.metric, reason))
        else:
            found.append(each)
    return tuple(found), tuple(lacks)


def _reason(nvml: Any, each: Field, value: Any, every_ns: int) -> str | None:
    """Why a field gives nothing."""
    if value.nvmlReturn != nvml.NVML_SUCCESS:
        return str(nvml.NVMLError(value.nvmlReturn))
    period_s = every_ns / _NS_PER_S
    wraps_s = (1 << _BITS.get(value.valueType, 64)) / each.most_per_s if each.most_per_s else None
    if wraps_s is not None and wraps_s <= period_s:
        return f"its counter can wrap in {wraps_s:.3f} s, unseen when sampled each {period_s:g} s"
    return None


def samples(
    nvml: Any,
    handle: Any,
    uuid: str,
    fields: tuple[Field, ...],
    counters: Counters,
    now_ns: Callable[[], int],
) -> list[Sample]:
    """One sample of each field that came; a counter gives its first at the second reading."""
    found: list[Sample] = []
    for each, value in zip(fields, _values(nvml, handle, fields), strict=True):
        if value.nvmlReturn != nvml.NVML_SUCCESS or value.valueType >= len(_VALUES):
            continue
        end_ns = value.timestamp * _NS_PER_US or now_ns()
        start_ns = end_ns - each.window_ns
        number = getattr(value.value, _VALUES[value.valueType])
        if each.most_per_s:
            gain = counters.gain(
                (uuid, each.metric),
                end_ns,
                int(number),
                most_per_s=each.most_per_s,
                bits=_BITS.get(value.valueType, 64),
            )
            if gain is None:
                continue
            start_ns, number = gain.start_ns, gain.value
        number = number * each.factor
        found.append(
            Sample(
                metric=each.metric,
                value=number if each.divisor == 1 else number / each.divisor,
                start_ns=start_ns,
                end_ns=end_ns,
                source=SOURCE,
                device_uuid=uuid,
            )
        )
    return found


def _values(nvml: Any, handle: Any, fields: tuple[Field, ...] | list[Field]) -> Any:
    wanted = [(getattr(nvml, _constant(each)), each.scope) for each in fields]
    return nvml.nvmlDeviceGetFieldValues(handle, wanted) if wanted else ()


def _constant(each: Field) -> str:
    return f"NVML_FI_DEV_{each.name}"


def _of_link(nvml: Any, handle: Any, each: Field) -> Field:
    """The field, with what the device's own PCIe link can carry at most."""
    if each.most_per_s != _PCIE_MOST_BYTES_PER_S:
        return each
    try:
        generation = nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)
        n_lanes = nvml.nvmlDeviceGetMaxPcieLinkWidth(handle)
        lane_bytes_per_s = _PCIE_LANE_MBYTES_PER_S[generation - 1] * 10**6
    except (nvml.NVMLError, IndexError):
        return each
    return replace(each, most_per_s=n_lanes * lane_bytes_per_s)
