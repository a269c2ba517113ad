"""The first screen: what to fix and what it buys, before anything has to be scrolled or clicked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.findings import Severity, Status, ranked
from tracekit.reports.components import (
    SEVERITY_LABELS,
    anchor,
    badge,
    counted,
    found,
    name,
    ranks_text,
)
from tracekit.reports.replayed import EFFICIENCY_TREE, replay_alone, replayed_verdict, trusted
from tracekit.reports.templating import rendered
from tracekit.results import CALLS, HOST_THREAD, LOGS
from tracekit.units import Unit, text

if TYPE_CHECKING:
    from markupsafe import Markup

    from tracekit.findings import Finding
    from tracekit.replays import Replayed
    from tracekit.results import Efficiency, Quality, Result, RunFacts

HOST_SENTENCE = (
    "No device event was recorded: the training thread stands for the device, "
    "so every figure is host time."
)

CALLS_SENTENCE = (
    "Recorded were calls of collectives alone: nothing is known of steps, and of what else devices "
    "do."
)
LOGS_SENTENCE = (
    "Read were logs of NCCL or measurements of nccl-tests alone: nothing is known of steps and "
    "devices."
)
REPLAY_SENTENCE = (
    "Recorded were operations, not what devices and hosts do: what can be said comes from a "
    "replay, and what made an operation long is not known."
)

MISSING_RANKS, NO_DEVICE_EVENTS = "missing ranks", "no device events"
"""Checks of the capture that the notices say in their own words."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the run is doing, in one word, and the CSS class that colours it."""

    label: str
    kind: str


@dataclass(frozen=True, slots=True)
class Bar:
    """One segment of the efficiency bar."""

    label: str
    value: str
    share: float
    meaning: str


def first_screen(result: Result) -> Markup:
    """Verdict, the three sentences, the facts of the run and the efficiency bar."""
    verdict = overall(result)
    problems = found(ranked(result.findings), Status.FOUND)
    sentences = headline(result)
    labels = (
        ("Cause", "Saving", "Cure") if problems and len(sentences) == 3 else ("",) * len(sentences)
    )
    return rendered(
        "first_screen.html.j2",
        badge=badge(verdict.label, verdict.kind),
        kind=verdict.kind,
        sentences=[
            (label, name(sentence, 400)) for label, sentence in zip(labels, sentences, strict=True)
        ],
        top=_top_link(problems),
        facts=facts(result.run, replay_alone(result)),
        notices=notices(result),
        efficiency=result.efficiency,
        bars=efficiency_bars(result.efficiency) if result.efficiency else (),
        why_none=_why_no_efficiency(result),
        text=text,
        Unit=Unit,
    )


def overall(result: Result) -> Verdict:
    """The worst severity found; healthy when none and the checks that count were made.

    A detector that failed, or fewer than half of the checks made, leaves too much open to call a
    run healthy. Checks of a further source that is not there do not count.
    """
    problems = found(result.findings, Status.FOUND)
    for severity in (Severity.CRITICAL, Severity.WARNING):
        if any(finding.severity is severity for finding in problems):
            return Verdict(SEVERITY_LABELS[severity], severity.value)
    if problems:
        return Verdict("Minor findings only", "info")
    n_clear = len(found(result.findings, Status.CLEAR))
    n_asked = sum(not finding.is_of_further_source for finding in result.findings)
    if not n_clear and replayed_verdict(result):
        return Verdict("Replayed only", "info")
    if not n_clear:
        return Verdict("Not enough data", "unknown")
    if found(result.findings, Status.FAILED) or 2 * n_clear < n_asked:
        return Verdict("Incomplete", "unknown")
    return Verdict("Healthy", "clear")


def headline(result: Result) -> tuple[str, ...]:
    """The result's own sentences, or what can be said without them.

    Where a replay is all there is, its sentence stands first: the others speak of checks alone.
    """
    if said := replayed_verdict(result):
        return (said, *result.headline[1:])
    if result.headline:
        return result.headline
    n_clear = len(found(result.findings, Status.CLEAR))
    n_found = len(found(result.findings, Status.FOUND))
    if n_found:
        return (f"{counted(n_found, 'finding')} in this run: see below.",)
    if n_clear:
        return (f"Nothing found that is worth fixing: {counted(n_clear, 'check')} came out fine.",)
    return ("Nothing could be checked: the capture holds too little.",)


def facts(run: RunFacts, replay: Replayed | None = None) -> tuple[tuple[str, str], ...]:
    """Label and value of what a reader must know to place the figures.

    Args:
        run: The run.
        replay: Its replay, where that is all that is known of it.
    """
    n_ranks, n_averaged = len(run.ranks), len(run.averaged_steps)
    models = sorted({rank.gpu_model for rank in run.ranks if rank.gpu_model})
    shown_models = ", ".join(models[:3]) + (
        f" and {len(models) - 3} more" if len(models) > 3 else ""
    )
    layout = " \u00d7 ".join(f"{key.upper()} {value}" for key, value in run.layout.items())
    ranks = ("Ranks", f"{n_ranks:,} of {run.world_size:,} analysed")
    if replay:
        step = f"{text(replay.measured_ns, Unit.NS)}, replayed {text(replay.step_ns, Unit.NS)}"
        return tuple(pair for pair in (ranks, ("Mean step", step), ("Layout", layout)) if pair[1])
    if run.device_kind in (CALLS, LOGS):
        return tuple(pair for pair in (ranks, ("Layout", layout)) if pair[1])
    pairs = (
        ranks,
        ("Devices", _devices(run, shown_models)),
        ("Mean step", text(run.step_ns, Unit.NS) if run.steps else "no step found"),
        ("Steps averaged", f"{n_averaged:,} of {len(run.steps):,}"),
        _clocks(run),
        ("Layout", layout),
    )
    return tuple((label, value) for label, value in pairs if value)


def _clocks(run: RunFacts) -> tuple[str, str]:
    """Whether times of ranks can be compared, and how far off they may be; nothing of one rank."""
    if run.clock_error_ns is None:
        return "Clocks", "not aligned" if len(run.ranks) > 1 else ""
    if run.clock_error_ns == 0:
        return "Clocks", "one for all ranks"
    return "Clock error", text(run.clock_error_ns, Unit.NS)


def _devices(run: RunFacts, shown_models: str) -> str:
    """How many devices of which model; training threads where no device was recorded."""
    if run.device_kind == HOST_THREAD:
        return f"none recorded, {counted(run.n_gpus, 'training thread')}"
    if not run.n_gpus:
        return "no GPU"
    return f"{run.n_gpus:,} \u00d7 {shown_models or 'model not recorded'}"


def efficiency_bars(efficiency: Efficiency) -> tuple[Bar, ...]:
    """The three segments of the mean step, in order; their shares add up to 1."""
    step_ns = efficiency.step_ns or 1.0
    segments = (
        ("Compute", efficiency.mean_compute_ns, "mean compute time of a rank"),
        (
            "Imbalance",
            efficiency.imbalance_ns,
            "the busiest rank computes this much longer than the mean",
        ),
        (
            "Communication, idle and the rest",
            efficiency.remainder_ns,
            "not even the busiest rank computes",
        ),
    )
    return tuple(
        Bar(label, text(ns, Unit.NS), max(0.0, ns / step_ns), meaning)
        for label, ns, meaning in segments
    )


def _top_link(problems: tuple[Finding, ...]) -> str:
    return anchor(problems[0]) if problems else ""


def notices(result: Result) -> tuple[str, ...]:
    """What weakens every figure of the page."""
    run = result.run
    sentences = []
    if result.source.other_runs:
        n_others = counted(len(result.source.other_runs), "other run")
        sentences.append(f"This path holds {n_others}; pick one with --run NAME.")
    if replay_alone(result):
        sentences.append(REPLAY_SENTENCE)
    elif run.device_kind == CALLS:
        sentences.append(CALLS_SENTENCE)
    elif run.device_kind == LOGS:
        sentences.append(LOGS_SENTENCE)
    elif run.device_kind == HOST_THREAD:
        sentences.append(HOST_SENTENCE + _why_no_device(result))
    if run.missing_ranks:
        n_missing = len(run.missing_ranks)
        who = "it" if n_missing == 1 else "they"
        sentences.append(
            f"{counted(n_missing, 'rank')} of {run.world_size:,} missing "
            f"({ranks_text(run.missing_ranks)}): what {who} did is not in these figures."
        )
    n_failed = len(found(result.findings, Status.FAILED))
    if n_failed:
        sentences.append(
            f"{counted(n_failed, 'detector')} failed, so a problem may be missing here."
        )
    if result.source.n_dropped:
        sentences.append(f"{counted(result.source.n_dropped, 'event')} dropped while reading.")
    return tuple(sentences)


def weighty_remarks(result: Result) -> tuple[Quality, ...]:
    """Remarks on the capture that weaken figures and stand in no notice: once each, gravest first.

    A check that several ranks share is told by its first remark.
    """
    run = result.run
    said = {MISSING_RANKS} if run.missing_ranks else set()
    if run.device_kind in (HOST_THREAD, CALLS, LOGS):
        said.add(NO_DEVICE_EVENTS)
    serious = [
        remark
        for remark in result.quality
        if remark.severity is not Severity.INFO and remark.check not in said
    ]
    serious.sort(key=lambda remark: remark.severity is not Severity.CRITICAL)
    first_of_check = {remark.check: remark for remark in reversed(serious)}
    return (*reversed(first_of_check.values()),)


def _why_no_device(result: Result) -> str:
    """What the capture says about it, where that is more than that there is none."""
    for remark in result.quality:
        if remark.check == NO_DEVICE_EVENTS and remark.severity is not Severity.INFO:
            return f" Recorded: {remark.detail}."
    return ""


def _why_no_efficiency(result: Result) -> str:
    if not result.run.ranks:
        return "No rank was found."
    if replay_alone(result):
        why = "It needs events of devices, and only operations were recorded"
        replay = trusted(result)
        shown = f"; of the replayed step it is below: {EFFICIENCY_TREE}"
        return f"{why}{shown if replay and replay.tree else ''}."
    if not result.run.steps:
        return "It needs step windows, and no step was found in this capture."
    return "It needs averaged steps with compute time on every rank, and this capture has none."
