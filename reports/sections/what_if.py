"""What stragglers cost: the mean step replayed without them, and with each kind of them alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from markupsafe import Markup

from tracekit.findings import Column
from tracekit.reports.components import counted, note, notice, table
from tracekit.reports.replayed import (
    INFERRED,
    MIN_SLOWDOWN,
    error_sentence,
    ideal_ns,
    straggler_sentence,
    trusted,
    why_not,
)
from tracekit.units import Unit, text

if TYPE_CHECKING:
    from tracekit.findings import Result
    from tracekit.replays import Replayed, Slowdowns

ORDER = 24
TITLE = "What stragglers cost"

SLOWEST_SHARE = 0.03
"""Of the workers, those that M_W makes ideal (arXiv 2505.05713)."""

HOST = "host"
"""The kind of work that only traces have, by its published name."""
WHAT_IT_IS = (
    "Without stragglers, work of each kind takes equally long on every rank and in every step: "
    "compute its mean, communication the median of its transfers."
)
HOST_AS_A_WHOLE = (
    "Of the host only the whole time on each rank is compared: a rank whose host is late while "
    "others wait for it takes as long as they do, and stands among the findings instead."
)
COLUMNS = (
    Column("Keeps its own times"),
    Column("Slowdown", Unit.RATIO),
    Column("Mean step", Unit.NS),
    Column("Cost a step", Unit.NS),
)
ANSWER_COLUMNS = (
    Column("Change"),
    Column("Mean step", Unit.NS),
    Column("Gained a step", Unit.NS),
    Column("of the step", Unit.SHARE),
)


def render(result: Result, /) -> Markup | None:
    """The step without stragglers, what each of them costs, answers; None without a replay."""
    slowdowns, replay = result.what_if, result.replay
    if slowdowns is None or replay is None:
        return None
    if trusted(result) is None:
        return why_not(replay)
    sentence = straggler_sentence(slowdowns, replay)
    return (
        Markup('<p class="sentence">{} {}</p>').format(sentence, error_sentence(replay))
        + (notice(INFERRED) if replay.is_inferred else Markup(""))
        + note(WHAT_IT_IS + (f" {HOST_AS_A_WHOLE}" if HOST in slowdowns.by_type else ""))
        + _shares(slowdowns)
        + _alone(result, slowdowns, replay)
        + _answers(replay)
    )


def _shares(slowdowns: Slowdowns) -> Markup:
    """What goes with the slowest workers and with the last stage, where that is defined."""
    n_workers = len(slowdowns.by_worker)
    n_slowest = math.ceil(SLOWEST_SHARE * n_workers - 1e-9)
    who = f"the slowest 3 % of the workers ({n_slowest:,} of {n_workers:,})"
    last = slowdowns.last_stage_share if len(slowdowns.by_stage) > 1 else None
    sentences = [
        _share_sentence(share, what)
        for share, what in ((slowdowns.worker_share, who), (last, "the last pipeline stage"))
        if share is not None
    ]
    return note(" ".join(sentences)) if sentences else Markup("")


def _share_sentence(share: float, what: str) -> str:
    if share <= 0:
        return f"Making {what} like the mean would win nothing back."
    sentence = f"Making {what} like the mean would win back {text(share, Unit.SHARE)} of this cost"
    return f"{sentence}: what is left is faster than the mean." if share > 1 else f"{sentence}."


def _alone(result: Result, slowdowns: Slowdowns, replay: Replayed) -> Markup:
    """The table of what slows the step by itself, the largest first."""
    if slowdowns.slowdown < MIN_SLOWDOWN:
        return Markup("")
    ratios = _ratios(result, slowdowns)
    kept = sorted((each for each in ratios if each[1] >= MIN_SLOWDOWN), key=lambda each: -each[1])
    limit = text(MIN_SLOWDOWN - 1, Unit.SHARE)
    if not kept:
        return note(f"No kind of work, replica or stage alone slows the step by {limit} or more.")
    ideal = ideal_ns(slowdowns, replay)
    rows = [(name, ratio, ratio * ideal, (ratio - 1) * ideal) for name, ratio in kept]
    small = ""
    if len(ratios) > len(kept):
        small = f" Left out: {counted(len(ratios) - len(kept), 'other')} below {limit}."
    return table("Slowdown where only this is not like the mean", COLUMNS, rows) + note(
        f"These costs overlap: they cannot be added up.{small}"
    )


def _ratios(result: Result, slowdowns: Slowdowns) -> list[tuple[str, float]]:
    """Kinds of work, replicas and stages by name; an only one keeps what all keep."""
    replicas, stages = slowdowns.by_dp, slowdowns.by_stage
    ranks = sorted(each.rank for each in result.run.ranks)
    names = [f"replica {name}" for name in replicas]
    if HOST in slowdowns.by_type and len(replicas) == len(slowdowns.by_worker) == len(ranks):
        # Replicas of one rank each are numbered in the order of ranks.
        names = [f"rank {ranks[int(name)]}" for name in replicas]
    return [
        *slowdowns.by_type.items(),
        *(zip(names, replicas.values(), strict=True) if len(replicas) > 1 else ()),
        *((f"stage {name}", ratio) for name, ratio in stages.items() if len(stages) > 1),
    ]


def _answers(replay: Replayed) -> Markup:
    if not replay.answers:
        return Markup("")
    rows = [
        (each.question, each.step_ns, each.gained_ns, each.gained_ns / replay.step_ns)
        for each in replay.answers
    ]
    return table("What a change would buy, replayed", ANSWER_COLUMNS, rows)
