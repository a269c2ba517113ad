"""Findings: what a detector says of a run, and how findings are ranked."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from tracekit.units import Quantity, Unit

Cell = str | int | float | bool | None
"""What a table of evidence may hold."""


class Status(StrEnum):
    """How a detector ended: a problem, none, not enough data, or a fault of the detector itself."""

    FOUND = "found"
    CLEAR = "clear"
    SKIPPED = "skipped"
    FAILED = "failed"


class Severity(StrEnum):
    """How much of the GPU time the low end of the saving is: ≥ 10 %, ≥ 1 %, less."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Level(StrEnum):
    """How sure a finding is."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class Cause(StrEnum):
    """The fixed vocabulary of causes. Adding one changes SCHEMA_VERSION."""

    SLOW_DEVICE = "slow-device"
    THROTTLED_DEVICE = "throttled-device"
    HETEROGENEOUS_DEVICE = "heterogeneous-device"
    SLOW_HOST = "slow-host"
    DATA_IMBALANCE = "data-imbalance"
    SEQUENCE_LENGTH_IMBALANCE = "sequence-length-imbalance"
    EXPERT_IMBALANCE = "expert-imbalance"
    MODALITY_IMBALANCE = "modality-imbalance"
    STAGE_IMBALANCE = "stage-imbalance"
    MICROBATCH_IMBALANCE = "microbatch-imbalance"
    INPUT_PIPELINE = "input-pipeline"
    GARBAGE_COLLECTION = "garbage-collection"
    HOST_PAUSE = "host-pause"
    HOST_SYNC = "host-sync"
    LAUNCH_OVERHEAD = "launch-overhead"
    ALLOCATOR = "allocator"
    COMPILATION = "compilation"
    CHECKPOINT = "checkpoint"
    CPU_OPTIMIZER = "cpu-optimizer"
    HOST_OTHER = "host-other"
    SLOW_LINK = "slow-link"
    SLOW_GROUP = "slow-group"
    NETWORK_TAIL = "network-tail"
    SMALL_MESSAGES = "small-messages"
    SERIALIZED_STREAMS = "serialized-streams"
    CONTENTION = "contention"
    EXPOSED_COMMUNICATION = "exposed-communication"
    COPY_IN_OUT = "copy-in-out"
    TOPOLOGY_SETTING = "topology-setting"
    PIPELINE_BUBBLE = "pipeline-bubble"
    LONG_TAIL_ROLLOUT = "long-tail-rollout"
    PHASE_INTERFERENCE = "phase-interference"
    REPEATED_WORK = "repeated-work"
    RECOMPUTE = "recompute"
    KERNEL_EFFICIENCY = "kernel-efficiency"
    LOW_OCCUPANCY = "low-occupancy"
    PRECISION = "precision"
    MEMORY_BANDWIDTH = "memory-bandwidth"
    MEMORY_PRESSURE = "memory-pressure"
    OFFLOAD = "offload"
    POWER_CAP = "power-cap"
    CLOCK_SETTING = "clock-setting"
    RESTART = "restart"
    PEER_FAILURE = "peer-failure"
    MISSING_CALL = "missing-call"
    MISMATCHED_CALL = "mismatched-call"
    PROFILER_OVERHEAD = "profiler-overhead"
    UNKNOWN = "unknown"


class Change(StrEnum):
    """What kind of change a recommendation asks for."""

    SETTING = "setting"
    CODE = "code"
    HARDWARE = "hardware"
    CHANGES_TRAINING = "changes training"


@dataclass(frozen=True, slots=True)
class Range:
    """A low and a high end, both of the unit the field's name says, and finite.

    Raises:
        ValueError: an end is infinite or not a number, or the low one is above the high one.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        """Refuse what is no range."""
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high):
            raise ValueError(f"not a range: {self.low} to {self.high}")


@dataclass(frozen=True, slots=True)
class Confidence:
    """How sure, and the reason in one sentence."""

    level: Level
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """What fixing it buys.

    `per_step_ns` is time off the mean step. `share` is its low end as a share of GPU time, which
    the severity follows; `share_high` the high end. `assumes` is the sentence the figure rests on.
    Where a replay gave the figure, `replayed_ns` is what it says of all ranks, and `alone_ns` what
    the step of the ranks at fault alone would gain if nobody had to wait for others (optimistic).
    """

    per_step_ns: Range
    share: float
    share_high: float
    gpu_hours_per_day: Range
    assumes: str
    replayed_ns: float | None = None
    alone_ns: float | None = None


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What to do: a sentence, the kind of change, and commands or settings to copy."""

    text: str
    kind: Change
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Column:
    """One column of an evidence table: the label a person reads and the unit of its numbers."""

    label: str
    unit: Unit = Unit.TEXT


@dataclass(frozen=True, slots=True)
class Evidence:
    """A small table that shows where a figure comes from. Rows are as long as `columns`."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Where to look: who waited, and the window (nanoseconds since the run's epoch)."""

    victims: tuple[int, ...] = ()
    start_ns: int | None = None
    end_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One conclusion about one subject. `(id, subject)` is unique and stable between runs.

    `ranks` are the ranks at fault; those who waited stand in `scope.victims`. A clear finding
    carries the measured value; a skipped one says in `why` which data would settle it and how to
    record them. Where those come from another source than traces (a log, a dump, a measurement),
    `is_of_further_source`: a run is none the worse checked for want of it.
    """

    id: str
    subject: str
    status: Status
    title: str
    severity: Severity | None = None
    cause: Cause | None = None
    ranks: tuple[int, ...] = ()
    groups: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()
    measured: Quantity | None = None
    limit: Quantity | None = None
    confidence: Confidence | None = None
    saving: Saving | None = None
    recommendation: Recommendation | None = None
    evidence: tuple[Evidence, ...] = ()
    scope: Scope | None = None
    why: str = ""
    is_of_further_source: bool = False


@dataclass(frozen=True, slots=True)
class Published:
    """A published system that exists because jobs waste time in one way: row, name, arXiv id."""

    row: int
    system: str
    arxiv: str


def ranked(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Found first, by severity, then by `worth`; then clear, skipped and failed ones, by id."""
    order = {Status.FOUND: 0, Status.FAILED: 1, Status.CLEAR: 2, Status.SKIPPED: 3}
    weight = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2, None: 3}

    def key(finding: Finding) -> tuple[int, int, float, float, str, str]:
        high_ns, low_ns = worth(finding)
        return (
            order[finding.status],
            weight[finding.severity],
            -high_ns,
            -low_ns,
            finding.id,
            finding.subject,
        )

    return tuple(sorted(findings, key=key))


def worth(finding: Finding) -> tuple[float, float]:
    """What a finding is ranked by: the high end of its saving in two digits, then the low end.

    Of two that save about the same, the surer one says more.
    """
    if finding.saving is None:
        return 0.0, 0.0
    span = finding.saving.per_step_ns
    return float(f"{span.high:.2g}"), span.low


def with_severity(finding: Finding) -> Finding:
    """Give a found finding its severity from the low end of its saving; others have none."""
    if finding.status is not Status.FOUND or finding.severity is not None:
        return finding
    share = finding.saving.share if finding.saving else 0.0
    severity = (
        Severity.CRITICAL if share >= 0.10 else Severity.WARNING if share >= 0.01 else Severity.INFO
    )
    return replace(finding, severity=severity)
