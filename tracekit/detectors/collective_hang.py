"""Ranks wait in collectives for ranks that never came: the job hangs, or did when it was ended.

What it measures:
    From flight recorder dumps, who waits for whom at the first call of each group that did not end,
    and where that waiting leads.

Formula:
    A rank waits for the members of a group that never made its first call that has not ended, and
    at a message for a peer without a matching call. At fault: ranks that someone waits for and that
    wait for nobody; ranks whose call has ended for another member (their device stopped); ranks
    that left no dump; circles. measured = ranks at fault.

Threshold:
    Found when any rank is at fault; a note where all that is known of them is that their dumps are
    not here, unless nearly all ranks dumped. Dumps do not say when they were taken: of a job that
    still ran, a rank may only have been ahead of another, so that the confidence is medium at most.
    Where all members are in one call that ended for none, nobody is named: a note, or critical
    where the files were written about as long after the call as its timeout.

Evidence:
    How far each rank at fault got in its groups against the others, and how long before them its
    last call was; the calls that wait, the first one first; where the ranks at fault were last,
    and where `tracekit.collect` found their Python thread.

What-if saving:
    None: the job stands still.

Recommendation:
    What to look at on the ranks at fault, by the kind of fault.

References:
    https://pytorch.org/tutorials/prototype/flight_recorder_tutorial.html
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.hangs import (
    Blocked,
    Fault,
    Hang,
    dumped,
    hang,
    progress,
    records,
    wrapped,
)
from tracekit.detectors import Detector, finding, number, rank_list
from tracekit.detectors._hang_evidence import behind, stacks, waiting
from tracekit.findings import (
    Cause,
    Change,
    Confidence,
    Finding,
    Level,
    Recommendation,
    Scope,
    Severity,
    Status,
)
from tracekit.schema import FLIGHT_GROUPS
from tracekit.units import Quantity, Unit, limit

if TYPE_CHECKING:
    from tracekit.store import Run

MAX_GROUPS = 8
CAUSES = {
    Fault.NEVER_CALLED: Cause.MISSING_CALL,
    Fault.DEVICE_STOPPED: Cause.PEER_FAILURE,
    Fault.NO_DUMP: Cause.PEER_FAILURE,
    Fault.CIRCLE: Cause.MISMATCHED_CALL,
}
ADVICE = {
    Fault.NEVER_CALLED: Recommendation(
        "See where the host of these ranks stands: it runs other code than its peers, or none (a "
        "lock, a data loader, an exception that was caught, a branch that only some ranks take).",
        Change.CODE,
        ("py-spy dump --pid PID", "export TORCH_INCLUDE_STACK_TRACE=1  # stacks in the next dump"),
    ),
    Fault.DEVICE_STOPPED: Recommendation(
        "Look for errors of these devices (Xid, ECC, NVLink) and take them out of the job.",
        Change.HARDWARE,
        ("dmesg | grep -i xid", "nvidia-smi -q -d ECC,PAGE_RETIREMENT", "dcgmi diag -r 3"),
    ),
    Fault.NO_DUMP: Recommendation(
        "These processes were gone or stuck when the others dumped: read their logs first.",
        Change.HARDWARE,
        ("journalctl -k | grep -i 'out of memory\\|xid'",),
    ),
    Fault.CIRCLE: Recommendation(
        "These ranks call their groups in different orders. Call them in the same order on all, or "
        "wait for each before the next.",
        Change.CODE,
        ("export TORCH_DISTRIBUTED_DEBUG=DETAIL  # names the calls that differ",),
    ),
}

ALL_JOINED = Recommendation(
    "No rank is missing. If the job stood still, the transport or a peer failed after the call "
    "began: read what NCCL wrote of the network and of errors of devices, on all nodes, and record "
    "more of it next time.",
    Change.HARDWARE,
    (
        "dmesg | grep -i 'xid\\|mlx5\\|link'",
        "export NCCL_DEBUG=INFO NCCL_DEBUG_FILE=/shared/folder/nccl.%h.%p",
        "export TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1",
    ),
)
MIN_DUMPS, MAX_MISSING_SHARE = 3, 0.1
"""With fewer dumps, or more ranks without one, dumps may only not have been collected."""
WRITTEN_WITHIN_NS = 600_000_000_000
"""A watchdog waits for the other ranks, and writes its dump some minutes after the timeout."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How many ranks must be at fault."""

    min_ranks: int = limit(1, Unit.COUNT, "One rank is enough to hold all others up.")


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for the job, with all ranks at fault."""
    found = hang(run)
    ranks = tuple(sorted(found.faults))
    measured = Quantity(len(ranks), Unit.COUNT)
    least = Quantity(limits.min_ranks, Unit.COUNT)
    if len(ranks) < limits.min_ranks and found.joined:
        return (_joined(run, found.joined, least),)
    if len(ranks) < limits.min_ranks:
        return (finding(DETECTOR, Status.CLEAR, measured=measured, limit=least),)
    first = min(found.faults.values(), key=list(Fault).index)
    victims = {rank for each in found.blocked for rank in each.ranks} - set(ranks)
    evidence = (behind(run, found), waiting(found.blocked), *stacks(run, ranks))
    return (
        finding(
            DETECTOR,
            Status.FOUND,
            title=_title(run, found),
            severity=Severity.INFO if _is_unseen(run, found) else Severity.CRITICAL,
            cause=CAUSES[first],
            ranks=ranks,
            groups=_groups(found),
            measured=measured,
            limit=least,
            confidence=_confidence(run, found),
            recommendation=_advice(found),
            evidence=evidence,
            scope=Scope(victims=tuple(sorted(victims))),
            why=_why(found),
        ),
    )


def _joined(run: Run, calls: tuple[Blocked, ...], least: Quantity) -> Finding:
    """All members are in a call and none has ended it: it runs, or its transport failed."""
    first = min(calls, key=lambda each: each.created_ns)
    n = len(first.ranks)
    has_timed_out = _has_timed_out(run, first)
    why = "the dumps were written as long after the call as its timeout"
    if not has_timed_out:
        why = "dumps do not say when they were taken: the job may have been running"
    return finding(
        DETECTOR,
        Status.FOUND,
        title=f"All {n} ranks are in {first.operation} {first.sequence} of group {first.group}, "
        "and none has ended it",
        severity=Severity.CRITICAL if has_timed_out else Severity.INFO,
        cause=Cause.PEER_FAILURE,
        groups=tuple(each.group for each in calls[:MAX_GROUPS]),
        measured=Quantity(0, Unit.COUNT),
        limit=least,
        confidence=Confidence(Level.MEDIUM if has_timed_out else Level.LOW, why),
        recommendation=ALL_JOINED,
        evidence=(waiting(calls),),
        scope=Scope(victims=first.ranks),
    )


def _has_timed_out(run: Run, call: Blocked) -> bool:
    """Whether dumps were written about its timeout after the call, as a watchdog writes them.

    By when the files were last changed: of copies that is when they were copied.
    """
    here = records(run).filter(~pl.col("is_message"), label=call.group, sequence=call.sequence)
    timeout_ns = here["timeout_ns"].max()
    of_call = progress(run).filter(pl.col("rank").is_in(call.ranks), label=call.group)
    after = of_call["written_ns"].drop_nulls() - call.created_ns
    if timeout_ns is None or after.is_empty():
        return False
    least_ns, most_ns = number(timeout_ns) / 2, number(timeout_ns) + WRITTEN_WITHIN_NS
    return bool(after.is_between(least_ns, most_ns).all())


def _why(found: Hang) -> str:
    """Who waits for the ranks at fault first, and in which call."""
    at_fault = set(found.faults)
    first = min(
        (each for each in found.blocked if at_fault & {*each.missing, *each.ranks}),
        key=lambda each: (each.sequence is None, each.created_ns),
    )
    who = f"{'rank' if len(first.ranks) == 1 else 'ranks'} {rank_list(list(first.ranks))}"
    wait = "waits" if len(first.ranks) == 1 else "wait"
    if first.sequence is None:
        return f"{who} {wait} in {first.operation} {first.group}"
    return f"{who} {wait} in {first.operation} {first.sequence} of group {first.group}"


def _groups(found: Hang) -> tuple[str, ...]:
    """Groups in whose collectives others wait for the ranks at fault, the first to wait first."""
    faulty = set(found.faults)
    at_fault = [
        each.group
        for each in found.blocked
        if each.sequence is not None and faulty & {*each.missing, *each.ranks}
    ]
    return tuple(dict.fromkeys(at_fault))[:MAX_GROUPS]


def _title(run: Run, found: Hang) -> str:
    by_fault: dict[Fault, list[int]] = {}
    for rank, fault in sorted(found.faults.items()):
        by_fault.setdefault(fault, []).append(rank)
    parts = [
        f"{'rank' if len(ranks) == 1 else 'ranks'} {rank_list(ranks)} {_said(fault, len(ranks))}"
        for fault, ranks in by_fault.items()
    ]
    if _is_unseen(run, found):
        return f"{parts[0].capitalize()} here, and others wait for what they may have called"
    return f"The job stands still: {'; '.join(parts)}"


def _is_unseen(run: Run, found: Hang) -> bool:
    """Whether others wait for ranks without a dump alone, of which nothing is known.

    Where nearly all ranks dumped, those that did not were most likely gone.
    """
    if set(found.faults.values()) != {Fault.NO_DUMP}:
        return False
    n_dumps, n_missing = len(dumped(run)), len(found.faults)
    return n_dumps < MIN_DUMPS or n_missing > max(1, MAX_MISSING_SHARE * n_dumps)


def _said(fault: Fault, n: int) -> str:
    many = {
        Fault.NEVER_CALLED: "never made a call that others wait in",
        Fault.DEVICE_STOPPED: "did not end a call that ended on other devices"
        if n == 1
        else "did not end calls that ended on other devices",
        Fault.NO_DUMP: "left no dump",
        Fault.CIRCLE: "wait for each other",
    }
    return many[fault]


def _advice(found: Hang) -> Recommendation:
    """The advice of every kind of fault, the first kind's first."""
    kinds = sorted(set(found.faults.values()), key=list(Fault).index)
    parts = [ADVICE[kind] for kind in kinds]
    return replace(
        parts[0],
        text=" ".join(part.text for part in parts),
        commands=tuple(command for part in parts for command in part.commands),
    )


def _confidence(run: Run, found: Hang) -> Confidence:
    if _is_unseen(run, found):
        return Confidence(Level.LOW, "the dumps of these ranks may only not have been collected")
    why = "dumps do not say when they were taken: if the job still ran, ranks may only be ahead"
    if Fault.NO_DUMP in found.faults.values():
        why += "; a dump that is not here may only not have been collected"
    if wrapped(run):
        why += f"; {len(wrapped(run))} rings wrapped and hold their last calls alone"
    n_missing = run.manifest.world_size - len(dumped(run))
    if n_missing > 0:
        why += f"; {n_missing} ranks left no dump here"
    return Confidence(Level.MEDIUM, why)


DETECTOR = Detector(
    id="collective-hang",
    title="The job stands still in a collective",
    clear="No rank is waited for in vain",
    needs=(FLIGHT_GROUPS,),
    how="Dumps of the flight recorder of all ranks show where a job hangs: set "
    "TORCH_FR_BUFFER_SIZE=2000, TORCH_NCCL_DUMP_ON_TIMEOUT=1 and "
    "TORCH_FR_DUMP_TEMP_FILE=/shared/folder/rank_ before it starts.",
    limits=Limits,
    detect=detect,
)
