"""What stragglers cost: the mean step replayed without them, and with each kind of them alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from tracekit.findings import Column
from tracekit.reports.components import counted, note, notice, table
from tracekit.reports.replayed import (
    ALONE,
    HOST,
    INFERRED,
    MIN_SLOWDOWN,
    error_sentence,
    ideal_ns,
    share_sentences,
    slowed_alone,
    straggler_sentence,
    trusted,
    why_not,
    worth_listing,
)
from tracekit.units import Unit, text

if TYPE_CHECKING:
    from tracekit.replays import Replayed, Slowdowns
    from tracekit.results import Result

ORDER = 24
TITLE = "What stragglers cost"

WHAT_IT_IS = (
    "Without stragglers, work of each kind takes equally long on every rank and in every step: "
    "compute its mean, communication the median of its transfers."
)
HOST_AS_A_WHOLE = (
    "Of the host only the whole time on each rank is compared: a rank whose host is late while "
    "others wait for it takes as long as they do, and stands among the findings instead."
)
ASK = Markup(
    "What another change would buy: <code>tracekit what-if FOLDER --scale kernel=0.5</code>, with "
    "the folder of this report; <code>tracekit what-if --help</code> says what can be asked."
)
REPLICA = "A replica is the ranks that share one data-parallel number: all stages of a pipeline."
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
        + note(ASK)
    )


def _shares(slowdowns: Slowdowns) -> Markup:
    sentences = share_sentences(slowdowns)
    return note(" ".join(sentences)) if sentences else Markup("")


def _alone(result: Result, slowdowns: Slowdowns, replay: Replayed) -> Markup:
    """The table of what slows the step by itself, the largest first."""
    if slowdowns.slowdown < MIN_SLOWDOWN:
        return Markup("")
    ratios = slowed_alone(slowdowns, sorted(each.rank for each in result.run.ranks))
    kept = worth_listing(ratios)
    limit = text(MIN_SLOWDOWN - 1, Unit.SHARE)
    if not kept:
        return note(f"No kind of work, replica or stage alone slows the step by {limit} or more.")
    ideal = ideal_ns(slowdowns, replay)
    rows = [(name, ratio, ratio * ideal, (ratio - 1) * ideal) for name, ratio in kept]
    small = ""
    if len(ratios) > len(kept):
        small = f" Left out: {counted(len(ratios) - len(kept), 'other')} below {limit}."
    said = f" {REPLICA}" if any(name.startswith("replica ") for name, _ in kept) else ""
    return table(ALONE, COLUMNS, rows) + note(
        f"These costs overlap: they cannot be added up.{small}{said}"
    )


def _answers(replay: Replayed) -> Markup:
    if not replay.answers:
        return Markup("")
    rows = [
        (each.question, each.step_ns, each.gained_ns, each.gained_ns / replay.step_ns)
        for each in replay.answers
    ]
    return table("What a change would buy, replayed", ANSWER_COLUMNS, rows)
