"""The result: plain data, all that a report, a terminal or another program reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from tracekit.errors import InputError
from tracekit.findings import Finding, Severity, Status
from tracekit.replays import Replayed, Slowdowns
from tracekit.standstill import Standstill
from tracekit.traffic import Traffic
from tracekit.waiting import Waiting

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA_VERSION = 1
GPU, HOST_THREAD, CALLS, LOGS = "gpu", "host thread", "calls", "logs"
"""What stands for a device in `RunFacts.device_kind`: a GPU, the training thread without one, or
nothing, where calls alone were recorded, or logs and measurements of the fabric are all.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One file that was read: its rank, what it held, and what was lost of it."""

    path: str
    rank: int
    size_bytes: int
    n_events: int
    n_dropped: int
    why: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where the run came from.

    `other_runs` are names of runs that lay beside it, `others` says what was left out, and why.
    """

    path: str
    files: tuple[SourceFile, ...]
    n_dropped: int = 0
    other_runs: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFacts:
    """One rank: where it ran. A null was not recorded."""

    rank: int
    host: str | None
    gpu_model: str | None
    backend: str | None
    devices: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """The run as a whole. `world_size` is what the job says, `ranks` what was found."""

    world_size: int
    ranks: tuple[RankFacts, ...]
    missing_ranks: tuple[int, ...]
    steps: tuple[int, ...]
    step_source: str
    averaged_steps: tuple[int, ...]
    averaged_why: str
    devices: tuple[str, ...]
    layout: dict[str, int]
    clock_error_ns: float | None
    device_kind: str
    step_ns: float
    n_gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Where the time of one rank's device goes, over one step or the whole trace.

    The five parts add up to `dur_ns` exactly; the three `…_communication` splits (waiting,
    transfer, unsplit) add up to `exposed_communication_ns`. `step` is null over the whole trace.
    `is_averaged` says whether the step enters the averages.
    """

    rank: int
    device: int
    step: int | None
    start_ns: int
    dur_ns: int
    exposed_compute_ns: int
    overlapped_ns: int
    exposed_communication_ns: int
    exposed_copy_ns: int
    idle_ns: int
    exposed_waiting_ns: int
    exposed_transfer_ns: int
    unsplit_communication_ns: int
    is_complete: bool
    is_averaged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """Load balance × communication efficiency of the mean step: POP metrics, without a replay.

    `load_balance_share` = mean C / max C, `communication_share` = max C / T, with C the compute
    time of a rank and T the mean step; the bars in ns (mean C, max C − mean C, T − max C) sum to T.
    """

    load_balance_share: float
    communication_share: float
    mean_compute_ns: float
    imbalance_ns: float
    remainder_ns: float
    step_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Inefficiency:
    """What came of the search for one published way to waste time: a finding's id and status."""

    row: int
    system: str
    arxiv: str
    finding: str
    state: Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """One check of how well the capture was recorded; `rank` is null for the run as a whole."""

    check: str
    severity: Severity
    rank: int | None
    count: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Everything a report needs. The three sentences of `headline` say cause, saving and cure."""

    schema_version: int = SCHEMA_VERSION
    tracekit_version: str
    created: str
    source: Source
    run: RunFacts
    headline: tuple[str, ...]
    efficiency: Efficiency | None
    breakdown: tuple[Parts, ...]
    whole: tuple[Parts, ...]
    findings: tuple[Finding, ...]
    quality: tuple[Quality, ...]
    what_if: Slowdowns | None = None
    replay: Replayed | None = None
    inefficiencies: tuple[Inefficiency, ...] = ()
    waiting: Waiting | None = None
    traffic: Traffic | None = None
    standstill: Standstill | None = None


class _Versioned(msgspec.Struct):
    schema_version: int


def write_result(result: Result, path: Path) -> None:
    """Write result.json whole: to a temporary name first, then renamed."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(encoded_result(result))
    temporary.replace(path)


def encoded_result(result: Result) -> bytes:
    """The result as indented JSON; a number that is not finite becomes null."""
    return msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n"


def read_result(path: Path) -> Result:
    """Read a result.json.

    Raises:
        InputError: the file is not a result, or one of another schema version.
    """
    hint = "Analyse the run again: tracekit analyze PATH"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", hint=hint) from error
    try:
        version = msgspec.json.decode(data, type=_Versioned).schema_version
        if version != SCHEMA_VERSION:
            raise InputError(f"{path}: schema version {version}, not {SCHEMA_VERSION}", hint=hint)
        return msgspec.json.decode(data, type=Result)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InputError(f"{path}: not a result of tracekit: {error}", hint=hint) from error
