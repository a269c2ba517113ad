"""NCCL moves bytes a slow way: TCP sockets, or host memory, where the hardware has a direct one.

What it measures:
    By what the ranks' connections go, as NCCL's log lists them: between nodes over RDMA with or
    without GPUDirect or over sockets, within a node peer to peer or through memory of the host.

Formula:
    share = connections of the slow way / connections of the place. Between nodes only receiving
    connections count for GPUDirect: NCCL itself sends through the host where that is faster.

Threshold:
    Found when the share is at least `min_share`. Skipped without a log.

Evidence:
    Connections by place, way and network; what the log says of networks and peers.

What-if saving:
    None: a log has no times. Where `low-bus-bandwidth` measures what is lost, it names this cause.

Recommendation:
    A variable is blamed only where the log shows it set. Else what to look at: devices in the
    container, the module for peer memory, access control of PCIe switches.

References:
    https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html
    https://github.com/NVIDIA/nccl/issues/489 (3 GB/s on 200 Gb/s).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.detectors import Detector, finding
from tracekit.detectors._nccl_log import HOW, found, ways
from tracekit.detectors._slow_ways import slow_ways
from tracekit.findings import Finding, Status
from tracekit.schema import TRANSPORTS
from tracekit.units import Quantity, Unit, limit

if TYPE_CHECKING:
    from tracekit.store import Run


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of the traffic must go the slow way."""

    min_share: float = limit(
        0.1, Unit.SHARE, "A single odd connection, as of a proxy, is not how the job talks."
    )


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for each slow way; else one that all is direct."""
    problems = slow_ways(run)
    loud = [each for each in problems if each.measured.value >= limits.min_share]
    bound = Quantity(limits.min_share, Unit.SHARE)
    if loud:
        return tuple(found(DETECTOR, run, each, bound) for each in loud)
    worst = max((each.measured.value for each in problems), default=0.0)
    return (
        finding(
            DETECTOR,
            Status.CLEAR,
            measured=Quantity(worst, Unit.SHARE),
            limit=bound,
            evidence=(ways(run),),
        ),
    )


DETECTOR = Detector(
    id="slow-transport",
    title="NCCL moves bytes a slow way",
    clear="NCCL's connections are direct",
    needs=(TRANSPORTS,),
    how=HOW,
    limits=Limits,
    detect=detect,
)
