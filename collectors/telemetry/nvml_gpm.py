"""GPU performance monitoring of NVML (Hopper and newer): means between two readings.

It needs no lock on the counters, so CUPTI and Nsight work beside it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracekit.collectors.telemetry.samples import Lack, Sample

if TYPE_CHECKING:
    from collections.abc import Callable

SOURCE = "nvml-gpm"
_PROBE_S = 0.1
_BYTES_PER_MIB = 1 << 20
_METRICS = {
    "graphics_busy_share": "GRAPHICS_UTIL",
    "sm_busy_share": "SM_UTIL",
    "sm_occupancy_share": "SM_OCCUPANCY",
    "tensor_busy_share": "ANY_TENSOR_UTIL",
    "fp64_busy_share": "FP64_UTIL",
    "fp32_busy_share": "FP32_UTIL",
    "fp16_busy_share": "FP16_UTIL",
    "integer_busy_share": "INTEGER_UTIL",
    "dram_busy_share": "DRAM_BW_UTIL",
    "pcie_tx_bytes_per_s": "PCIE_TX_PER_SEC",
    "pcie_rx_bytes_per_s": "PCIE_RX_PER_SEC",
    "nvlink_tx_bytes_per_s": "NVLINK_TOTAL_TX_PER_SEC",
    "nvlink_rx_bytes_per_s": "NVLINK_TOTAL_RX_PER_SEC",
}
"""Name after `NVML_GPM_METRIC_` of each metric."""


@dataclass(slots=True)
class Monitor:
    """Two readings of a device that take turns, and what to compute from them."""

    handle: Any
    uuid: str
    request: Any
    metrics: tuple[str, ...]
    before: Any
    after: Any
    before_ns: int


def opened(
    nvml: Any, devices: dict[str, Any], now_ns: Callable[[], int]
) -> tuple[tuple[Monitor, ...], tuple[Lack, ...]]:
    """A monitor of each device that has them, and why devices lack which metrics.

    Args:
        nvml: The module pynvml.
        devices: Handles by UUID.
        now_ns: Time since 1970.
    """
    monitors: list[Monitor] = []
    lacks: list[Lack] = []
    for uuid, handle in devices.items():
        try:
            monitors.append(_monitor(nvml, handle, uuid, now_ns))
        except (nvml.NVMLError, LookupError) as error:
            lacks += [Lack(uuid, metric, str(error)) for metric in _METRICS]
    if monitors:
        time.sleep(_PROBE_S)  # which metrics a device has shows in a difference only
    for monitor in monitors:
        reasons = _reasons(nvml, monitor, now_ns)
        lacks += [Lack(monitor.uuid, metric, reason) for metric, reason in reasons.items()]
        _ask(nvml, monitor, tuple(each for each in monitor.metrics if each not in reasons))
    return tuple(each for each in monitors if each.metrics), tuple(lacks)


def _monitor(nvml: Any, handle: Any, uuid: str, now_ns: Callable[[], int]) -> Monitor:
    if not hasattr(nvml, "nvmlGpmQueryDeviceSupport"):
        raise LookupError("not in this version of nvidia-ml-py")
    if not nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
        raise LookupError("this device has no GPM: Hopper and newer ones do")
    before = nvml.nvmlGpmSampleAlloc()
    monitor = Monitor(
        handle=handle,
        uuid=uuid,
        request=nvml.c_nvmlGpmMetricsGet_t(),
        metrics=(),
        before=before,
        after=nvml.nvmlGpmSampleAlloc(),
        before_ns=now_ns(),
    )
    nvml.nvmlGpmSampleGet(handle, before)
    _ask(nvml, monitor, tuple(_METRICS))
    return monitor


def _ask(nvml: Any, monitor: Monitor, metrics: tuple[str, ...]) -> None:
    monitor.metrics = metrics
    monitor.request.version = nvml.NVML_GPM_METRICS_GET_VERSION
    monitor.request.numMetrics = len(metrics)
    for place, metric in enumerate(metrics):
        number = getattr(nvml, f"NVML_GPM_METRIC_{_METRICS[metric]}")
        monitor.request.metrics[place].metricId = number


def _reasons(nvml: Any, monitor: Monitor, now_ns: Callable[[], int]) -> dict[str, str]:
    """Why metrics do not come, by metric."""
    try:
        _advance(nvml, monitor, now_ns)
    except nvml.NVMLError as error:
        return dict.fromkeys(monitor.metrics, str(error))
    return {
        metric: str(nvml.NVMLError(monitor.request.metrics[place].nvmlReturn))
        for place, metric in enumerate(monitor.metrics)
        if monitor.request.metrics[place].nvmlReturn != nvml.NVML_SUCCESS
    }


def _advance(nvml: Any, monitor: Monitor, now_ns: Callable[[], int]) -> tuple[int, int]:
    """Read again, compute the means since the reading before; start and end of that time.

    GPM has no stamp of its own: the time is that of the call.
    """
    start_ns, end_ns = monitor.before_ns, now_ns()
    nvml.nvmlGpmSampleGet(monitor.handle, monitor.after)
    monitor.request.sample1, monitor.request.sample2 = monitor.before, monitor.after
    monitor.before, monitor.after = monitor.after, monitor.before
    monitor.before_ns = end_ns
    nvml.nvmlGpmMetricsGet(monitor.request)
    return start_ns, end_ns


def samples(nvml: Any, monitor: Monitor, now_ns: Callable[[], int]) -> list[Sample]:
    """The means since the reading before."""
    start_ns, end_ns = _advance(nvml, monitor, now_ns)
    return [
        Sample(
            metric=metric,
            value=_scaled(metric, monitor.request.metrics[place].value),
            start_ns=start_ns,
            end_ns=end_ns,
            source=SOURCE,
            device_uuid=monitor.uuid,
        )
        for place, metric in enumerate(monitor.metrics)
        if monitor.request.metrics[place].nvmlReturn == nvml.NVML_SUCCESS
    ]


def _scaled(metric: str, value: float) -> float:
    """A share of percent, bytes/s of MiB/s."""
    return value / 100 if metric.endswith("_share") else value * _BYTES_PER_MIB
