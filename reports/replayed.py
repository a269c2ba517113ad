"""What the replay of a run says in words, for the first screen and the sections about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from tracekit.findings import HOST_THREAD, Status
from tracekit.replays import MAX_ERROR_SHARE
from tracekit.reports.components import found, notice
from tracekit.units import Unit, text

if TYPE_CHECKING:
    from tracekit.findings import Result
    from tracekit.replays import Replayed, Slowdowns

MIN_SLOWDOWN = 1.005
"""Slowdowns below it print as 1.00×: they are counted, not listed."""

INFERRED = (
    "Not all dependencies were recorded: some are inferred from the times, and figures that rest "
    "on them are less sure."
)


def trusted(result: Result) -> Replayed | None:
    """The replay of a run, where it meets the measured step closely enough to claim something."""
    replay = result.replay
    return replay if replay is not None and replay.is_trusted and replay.step_ns > 0 else None


def replay_alone(result: Result) -> Replayed | None:
    """The replay of a run of operations: nothing is known of devices or hosts."""
    is_measured = bool(result.breakdown or result.whole)
    return None if is_measured or result.what_if is None else result.replay


def replayed_verdict(result: Result) -> str:
    """What a replay says of a run of which nothing else is known; empty where that is nothing."""
    replay = replay_alone(result) and trusted(result)
    if not replay or result.what_if is None or found(result.findings, Status.FOUND):
        return ""
    return straggler_sentence(result, result.what_if, replay)


def straggler_sentence(result: Result, slowdowns: Slowdowns, replay: Replayed) -> str:
    """What the mean step would take without stragglers."""
    step, ideal = (text(ns, Unit.NS) for ns in (replay.step_ns, ideal_ns(slowdowns, replay)))
    if slowdowns.slowdown < MIN_SLOWDOWN:
        return f"Equally long work on all ranks would gain next to nothing of the {step} step."
    # Where there are steps of a training thread, that thread is what waits.
    is_host = result.run.device_kind == HOST_THREAD and result.breakdown
    return (
        f"Without stragglers the mean step would take {ideal} instead of {step}: "
        f"{text(slowdowns.waste, Unit.SHARE)} of the {'rank' if is_host else 'GPU'} time."
    )


def ideal_ns(slowdowns: Slowdowns, replay: Replayed) -> float:
    """The mean step without stragglers, ns."""
    return replay.step_ns / slowdowns.slowdown


def error_sentence(replay: Replayed) -> str:
    """How far the replay is from what was measured."""
    return (
        "The replay that says so misses the measured step of "
        f"{text(replay.measured_ns, Unit.NS)} by {text(replay.error_share, Unit.SHARE)}."
    )


def caveats(replay: Replayed) -> Markup:
    """Notices of what makes the replay less sure, or of no use."""
    body = Markup("")
    if not replay.is_trusted:
        body += notice(
            f"The replay misses the measured step of {text(replay.measured_ns, Unit.NS)} by "
            f"{text(replay.error_share, Unit.SHARE)}, more than "
            f"{text(MAX_ERROR_SHARE, Unit.SHARE)}: nothing is claimed from it.",
            "warning",
        )
    elif replay.is_inferred:
        body += notice(INFERRED)
    return body
