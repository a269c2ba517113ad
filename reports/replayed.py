"""What the replay of a run says in words, for the first screen and the sections about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Status
from tracekit.replays import MAX_ERROR_SHARE, MIN_LAUNCHED_SHARE, n_slowest
from tracekit.reports.components import found, notice
from tracekit.units import Unit, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup

    from tracekit.replays import Replayed, Slowdowns
    from tracekit.results import Result

MIN_SLOWDOWN = 1.005
"""Slowdowns below it print as 1.00×: they are counted, not listed."""
MAX_EXCESS_SHARE = 0.005
"""What a path may be longer than the step before its parts are shares of itself."""
EFFICIENCY_TREE = "Why the step is no shorter"
"""Title of the section about it, by which other places name it."""
HOST = "host"
"""The kind of work that only traces have, by its published name."""
ALONE = "Slowdown where only this is not like the mean"
"""Title of what `slowed_alone` lists."""

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
    if 1 / slowdowns.slowdown >= MIN_SLOWDOWN:
        longer = text(1 / slowdowns.slowdown - 1, Unit.SHARE)
        return f"Stragglers do not slow the step: with all work alike it would take {longer} more."
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


def share_sentences(slowdowns: Slowdowns) -> list[str]:
    """What goes with the slowest workers and with the last stage, where that is defined."""
    n_workers = len(slowdowns.by_worker)
    who = f"the slowest 3 % of the workers ({n_slowest(n_workers):,} of {n_workers:,})"
    last = slowdowns.last_stage_share if len(slowdowns.by_stage) > 1 else None
    return [
        _share_sentence(share, what)
        for share, what in ((slowdowns.worker_share, who), (last, "the last pipeline stage"))
        if share is not None
    ]


def _share_sentence(share: float, what: str) -> str:
    if share <= 0:
        return f"Making {what} like the mean would win nothing back."
    sentence = f"Making {what} like the mean would win back {text(share, Unit.SHARE)} of this cost"
    return f"{sentence}: what is left is faster than the mean." if share > 1 else f"{sentence}."


def slowed_alone(slowdowns: Slowdowns, ranks: Sequence[int] = ()) -> list[tuple[str, float]]:
    """Slowdowns of kinds of work, replicas and stages by name; an only one keeps what all keep.

    Args:
        slowdowns: Of the run.
        ranks: All ranks in order, to call replicas by them where each is one rank.
    """
    replicas, stages = slowdowns.by_dp, slowdowns.by_stage
    names = [f"replica {name}" for name in replicas]
    if HOST in slowdowns.by_type and len(replicas) == len(slowdowns.by_worker) == len(ranks):
        # Replicas of one rank each are numbered in the order of ranks.
        names = [f"rank {ranks[int(name)]}" for name in replicas]
    return [
        *slowdowns.by_type.items(),
        *(zip(names, replicas.values(), strict=True) if len(replicas) > 1 else ()),
        *((f"stage {name}", ratio) for name, ratio in stages.items() if len(stages) > 1),
    ]


def worth_listing(slowed: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """Those that do not print as 1.00×, the largest first."""
    return sorted((each for each in slowed if each[1] >= MIN_SLOWDOWN), key=lambda each: -each[1])


def path_whole(replay: Replayed) -> tuple[float, str]:
    """What parts of the longest path are shares of, ns, and its name: the step, or the longer path.

    The path runs from where the first rank begins to where the last one ends.
    """
    listed_ns = sum(each.per_step_ns for each in replay.critical_path)
    step_ns = replay.path_step_ns or replay.step_ns
    is_longer = listed_ns > step_ns * (1 + MAX_EXCESS_SHARE)
    return (listed_ns, "of the path") if is_longer else (step_ns, "of the step")


def why_not(replay: Replayed) -> Markup:
    """The notice of why nothing is claimed from a replay that is not trusted."""
    is_pinned = replay.launched_share < MIN_LAUNCHED_SHARE
    return notice(why_not_sentence(replay), "unknown" if is_pinned else "warning")


def why_not_sentence(replay: Replayed) -> str:
    """Why nothing is claimed from a replay that is not trusted."""
    if replay.launched_share < MIN_LAUNCHED_SHARE:
        return (
            f"Only {text(replay.launched_share, Unit.SHARE)} of the device's work has its launch "
            "in the file. The rest stays where it was in a replay, so nothing is claimed from it."
        )
    return (
        f"The replay misses the measured step of {text(replay.measured_ns, Unit.NS)} by "
        f"{text(replay.error_share, Unit.SHARE)}, more than "
        f"{text(MAX_ERROR_SHARE, Unit.SHARE)}: nothing is claimed from it."
    )
