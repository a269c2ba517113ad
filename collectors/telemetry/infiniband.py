"""Ports of InfiniBand and RoCE adapters, from sysfs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.collectors.telemetry import readings
from tracekit.collectors.telemetry.counters import Counters
from tracekit.collectors.telemetry.readings import Reading
from tracekit.collectors.telemetry.samples import Sample, Source, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SOURCE = "infiniband"
_FOLDER = Path("/sys/class/infiniband")
_COUNTERS = {
    "port_xmit_data": ("infiniband_tx_bytes", 4),  # counted in words of 4 bytes
    "port_rcv_data": ("infiniband_rx_bytes", 4),
    "port_xmit_wait": ("infiniband_wait_count", 1),
    "port_xmit_discards": ("infiniband_discards_count", 1),
    "port_rcv_errors": ("infiniband_receive_errors_count", 1),
    "symbol_error": ("infiniband_symbol_errors_count", 1),
    "link_error_recovery": ("infiniband_recoveries_count", 1),
    "link_downed": ("infiniband_downs_count", 1),
}
"""Metric, and how many of its unit one count is.

Source: Linux, Documentation/ABI/stable/sysfs-class-infiniband.
"""


def opened(folder: Path = _FOLDER, now_ns: Callable[[], int] = time.time_ns) -> Source:
    """All ports of this host.

    Raises:
        UnavailableError: there is no port.
    """
    ports = {
        f"{path.parents[2].name}/{path.parent.name}": path
        for path in sorted(folder.glob("*/ports/*/counters"))
    }
    if not ports:
        raise UnavailableError(f"no port below {folder}")
    counters = Counters()

    def read() -> list[Sample]:
        return readings.samples(_readings(ports), counters, now_ns(), SOURCE)

    return Source(id=SOURCE, read=read)


def _readings(ports: dict[str, Path]) -> Iterator[Reading]:
    for port, path in ports.items():
        for name, (metric, factor) in _COUNTERS.items():
            try:
                value = int((path / name).read_text(encoding="ascii"))
            except (OSError, ValueError):  # not of this adapter, or the port is gone
                continue
            yield Reading(metric, value * factor, part=port)
