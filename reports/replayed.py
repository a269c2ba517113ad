"""What the replay of a run says in words, for the first screen and the sections about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Status
from tracekit.replays import MAX_ERROR_SHARE, MIN_LAUNCHED_SHARE
from tracekit.reports.components import found, notice
from tracekit.units import Unit, text

if TYPE_CHECKING:
    from markupsafe import Markup

    from tracekit.findings import Result
    from tracekit.replays import Replayed, Slowdowns

MIN_SLOWDOWN = 1.005
"""Slowdowns below it print as 1.00×: they are counted, not listed."""

INFERRED = (
    "Not all dependencies were recorded: some are inferred from the times, and figures that rest "
    "on them are less sure."
)


def trusted(result: Result) -> Replayed | None:
    """The replay of a run, where something may be claimed from it."""
    replay = result.replay
    return replay if replay and replay.is_trusted and replay.step_ns > 0 else None


def replay_alone(result: Result) -> Replayed | None:
    """The replay of a run of operations: nothing is known of devices or hosts."""
    is_measured = bool(result.breakdown or result.whole)
    return None if is_measured or result.what_if is None else result.replay


def replayed_verdict(result: Result) -> str:
    """What a replay says of a run of which nothing else is known; empty where that is nothing."""
    replay = replay_alone(result) and trusted(result)
    if not replay or result.what_if is None or found(result.findings, Status.FOUND):
        return ""
    return straggler_sentence(result.what_if, replay)


def straggler_sentence(slowdowns: Slowdowns, replay: Replayed) -> str:
    """What the mean step would take without stragglers."""
    step, ideal = (text(ns, Unit.NS) for ns in (replay.step_ns, ideal_ns(slowdowns, replay)))
    if slowdowns.slowdown < MIN_SLOWDOWN:
        return f"Equally long work on all ranks would gain next to nothing of the {step} step."
    return (
        f"Without stragglers the mean step would take {ideal} instead of {step}: "
        f"{text(slowdowns.waste, Unit.SHARE)} of the GPU time."
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


def why_not(replay: Replayed) -> Markup:
    """The notice of why nothing is claimed from a replay that is not trusted."""
    if replay.launched_share < MIN_LAUNCHED_SHARE:
        return notice(
            f"Only {text(replay.launched_share, Unit.SHARE)} of the device's work has its launch "
            "in the file. The rest stays where it was in a replay, so nothing is claimed from it.",
            "unknown",
        )
    return notice(
        f"The replay misses the measured step of {text(replay.measured_ns, Unit.NS)} by "
        f"{text(replay.error_share, Unit.SHARE)}, more than "
        f"{text(MAX_ERROR_SHARE, Unit.SHARE)}: nothing is claimed from it.",
        "warning",
    )
