"""From findings to advice: who gets which, how savings combine, and the three sentences."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.advice import ADVICE
from tracekit.findings import (
    Cause,
    Finding,
    Range,
    Severity,
    Status,
    ranked,
    with_severity,
    worth,
)
from tracekit.units import Unit, text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.detectors import Detector

OF_HANGS = {Cause.MISSING_CALL, Cause.PEER_FAILURE, Cause.MISMATCHED_CALL}
"""A job that stands still for one of these has no step to save from."""


def completed(
    findings: tuple[Finding, ...], detectors: Mapping[str, Detector]
) -> tuple[Finding, ...]:
    """Bound savings by their parent's, leave each to one finding, give advice, and rank."""
    by_id: dict[str, list[Finding]] = {}
    for finding in findings:
        by_id.setdefault(finding.id, []).append(finding)
    parents = {name: detector.bounded_by for name, detector in detectors.items()}
    bounded = []
    for finding in findings:
        parts = [other for other in findings if parents.get(other.id) == finding.id]
        own = _bounded(finding, by_id.get(parents.get(finding.id) or "", []))
        bounded.append(_named_by_parts(own, parts))
    return ranked(tuple(with_severity(_advised(finding)) for finding in bounded))


def headline(findings: tuple[Finding, ...], n_checked: int, device: str = "GPU") -> tuple[str, ...]:
    """Three sentences: cause, saving, cure; or that nothing found is worth fixing.

    Args:
        findings: Completed ones.
        n_checked: How many detectors were asked.
        device: What a second of the saving is a second of: a GPU, or a rank without one.
    """
    loud = [f for f in findings if f.status is Status.FOUND and f.severity is not Severity.INFO]
    if not loud:
        return _healthy(findings, n_checked)
    top = max(loud, key=worth)
    return (
        f"{top.title}: {_cause_text(top)}.",
        _saving_text(top, device),
        top.recommendation.text if top.recommendation else "See the evidence below.",
    )


def _healthy(findings: tuple[Finding, ...], n_checked: int) -> tuple[str, ...]:
    ran = {f.id for f in findings if f.status in (Status.FOUND, Status.CLEAR)}
    n_small = sum(finding.status is Status.FOUND for finding in findings)
    notes = {0: "", 1: ", 1 smaller note stands below"}.get(
        n_small, f", {n_small} smaller notes stand below"
    )
    # what only a log or a dump would tell is not held against a run of traces
    n_further = len({f.id for f in findings if f.is_of_further_source} - ran)
    is_thin = 2 * len(ran) <= n_checked - n_further
    return (
        "Too little could be checked." if is_thin else "Nothing found that is worth fixing.",
        f"{len(ran)} of {n_checked} checks ran{notes}.",
        "What was checked and what would need more data is listed below.",
    )


def _cause_text(finding: Finding) -> str:
    """What the finding rests on, where it says so, else the cause by name."""
    if finding.why:
        return finding.why
    if finding.cause in (None, Cause.UNKNOWN):
        return "the traces do not show the cause"
    return finding.cause.value.replace("-", " ")


def _saving_text(finding: Finding, device: str) -> str:
    saving = finding.saving
    if saving is None and finding.cause in OF_HANGS:
        return "No further step ends before this is mended."
    if saving is None:
        return "What fixing it buys cannot be said from these traces."
    low, high = saving.per_step_ns.low, saving.per_step_ns.high
    is_one = low >= 0.95 * high
    amount = text(high, Unit.NS) if is_one else f"{text(low, Unit.NS)} to {text(high, Unit.NS)}"
    share, hours = text(saving.share_high, Unit.SHARE), saving.gpu_hours_per_day.high
    return (
        f"Fixing it saves {'up to ' if is_one else ''}{amount} of each step, up to {share} of the "
        f"{device} time ({hours:,.1f} {device}-hours a day)."
    )


def _bounded(finding: Finding, parents: list[Finding]) -> Finding:
    """A saving is at most that of the finding it is part of."""
    bounds = [parent.saving for parent in parents if parent.saving is not None]
    if finding.saving is None or not bounds:
        return finding
    bound = max(bounds, key=lambda each: each.per_step_ns.high)
    own = finding.saving
    if own.per_step_ns.high <= bound.per_step_ns.high:
        return finding
    low = min(own.per_step_ns.low, bound.per_step_ns.high)
    ratio = bound.per_step_ns.high / own.per_step_ns.high
    replayed_ns = own.replayed_ns
    if replayed_ns is not None:
        replayed_ns = min(replayed_ns, bound.per_step_ns.high)
    return replace(
        finding,
        saving=replace(
            own,
            per_step_ns=Range(low, bound.per_step_ns.high),
            replayed_ns=replayed_ns,
            share=min(own.share, bound.share_high),
            share_high=bound.share_high,
            gpu_hours_per_day=Range(
                min(own.gpu_hours_per_day.low, own.gpu_hours_per_day.high * ratio),
                own.gpu_hours_per_day.high * ratio,
            ),
        ),
    )


def _named_by_parts(finding: Finding, parts: list[Finding]) -> Finding:
    """The saving is left to a part that has the same cause and most of it: it says more."""
    named = [part for part in parts if part.status is Status.FOUND and part.cause is finding.cause]
    if finding.status is not Status.FOUND or not named or not _is_most(named[0], finding):
        return finding
    return replace(finding, saving=None, why=f"most of it is named by {named[0].id}")


def _is_most(part: Finding, whole: Finding) -> bool:
    """Whether a part holds at least half of what the whole saves; so does one that claims none."""
    if part.saving is None or whole.saving is None:
        return True
    return 2 * part.saving.per_step_ns.high >= whole.saving.per_step_ns.high


def _advised(finding: Finding) -> Finding:
    if finding.status is not Status.FOUND or finding.recommendation is not None:
        return finding
    advice = ADVICE.get(finding.cause or Cause.UNKNOWN, ADVICE[Cause.UNKNOWN])
    return replace(finding, recommendation=advice)
