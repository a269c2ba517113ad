"""What a result says of communication: plain data, by group and operation, phase, and pair.

The formulas stand in `tracekit.derive.traffic` and `tracekit.derive.communication`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Bound(StrEnum):
    """What a collective of its usual size costs most: the start, or the bytes."""

    LATENCY = "latency"
    BANDWIDTH = "bandwidth"


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeTraffic:
    """Collectives of one size: `size_bytes` as nccl-tests count them; busbw in 10⁹ bytes a second.

    `busbw_gb_s` is null for operations without a bus bandwidth.
    """

    size_bytes: int
    n_calls: int
    p50_ns: float
    p99_ns: float
    busbw_gb_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """t = `latency_ns` + bytes / bandwidth, with `busbw_gb_s` the bus bandwidth of that.

    `error_share` is the mean of |t − fit| / t over sizes, weighted by their calls. Of `half_bytes`
    half of the time is latency. `busbw_gb_s` is null where time does not grow with bytes.
    """

    latency_ns: float
    busbw_gb_s: float | None
    half_bytes: float | None
    error_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationTraffic:
    """One operation of one group over the whole trace; the exposed times are a mean step's.

    `dimension` is the parallel dimension that the group serves (data, tensor, pipeline, expert,
    context), as the job calls it or inferred; null where neither says.

    Times of instances are transfers, never durations of kernels. `excess_ns` is the sum of what
    instances took longer than the median of their size. `is_bound` says that members were not
    recorded, so that transfers are at most, and bandwidths at least, what stands here. Exposed
    times are means over ranks and averaged steps; the parts that are not known are null.
    `roof_gb_s` is the bus bandwidth that the `fabric` of the group carries, where both are known.
    """

    group: str
    dimension: str | None
    is_dimension_inferred: bool
    operation: str
    n_members: int | None
    n_calls: int
    total_bytes: int | None
    p50_ns: float | None
    p99_ns: float | None
    excess_ns: float | None
    busbw_gb_s: float | None
    is_bound: bool
    bound: Bound | None
    fit: Fit | None
    step_ns: float | None
    exposed_wait_ns: float | None
    exposed_transfer_ns: float | None
    exposed_unsplit_ns: float | None
    hidden_ns: float | None
    sizes: tuple[SizeTraffic, ...] = ()
    roof_gb_s: float | None = None
    fabric: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTraffic:
    """Communication of a mean step of a rank in one phase; `phase` null: not known.

    `n_calls` and times are means over ranks and averaged steps.
    """

    phase: str | None
    dimension: str | None
    operation: str | None
    n_calls: float
    step_ns: float
    exposed_wait_ns: float
    exposed_transfer_ns: float
    exposed_unsplit_ns: float
    hidden_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTraffic:
    """Messages from one rank to another, or (`is_hosts`) from ranks of one host to another's.

    `p50_ns` is of transfers; null where none is known.
    """

    sender: str
    receiver: str
    is_hosts: bool
    n_calls: int
    total_bytes: int | None
    p50_ns: float | None
    busbw_gb_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """All communication: `n_instances` in all, of which one rank alone recorded `n_unmatched`."""

    n_instances: int
    n_unmatched: int
    operations: tuple[OperationTraffic, ...]
    phases: tuple[PhaseTraffic, ...] = ()
    pairs: tuple[PairTraffic, ...] = ()
