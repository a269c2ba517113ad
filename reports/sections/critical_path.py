"""What the step waits for in the end: its longest path, and the slack of all that is not on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from tracekit.findings import Column
from tracekit.reports.components import NOT_RECORDED, name, note, table, window_text
from tracekit.reports.flow import Bar, flow
from tracekit.reports.replayed import path_whole, trusted
from tracekit.units import Unit, text

if TYPE_CHECKING:
    from tracekit.replays import OnPath, Replayed
    from tracekit.results import Result

ORDER = 26
TITLE = "What the step waits for in the end"

MAX_BARS = 16

HOW_TO_READ = (
    "The longest path through the replayed steps: what is on it makes the step longer by as much "
    "as it grows, and shorter by at most as much as it shrinks. What is not on it makes no "
    "difference until its slack is used up."
)
SLACK = (
    "Slack: how much later one piece of work could end, all else as it is, without the step "
    "ending later. Work without slack is critical."
)
SLACK_COLUMNS = (
    Column("Work"),
    Column("Time a step, all ranks", Unit.NS),
    Column("of it critical", Unit.SHARE),
    Column("Slack, median piece", Unit.NS),
    Column("Kind"),
)
LATENCY = "latency"
LATENCIES = " Latency: launches to arrive, streams to go on, calls to return."


def render(result: Result, /) -> Markup | None:
    """Bars of the path and the table of slack; None without a replay to be trusted."""
    replay = trusted(result)
    if replay is None or not (replay.critical_path or replay.slack):
        return None
    return (_path(replay) if replay.critical_path else Markup("")) + (
        _slack(replay) if replay.slack else Markup("")
    )


def _path(replay: Replayed) -> Markup:
    whole_ns, whole = path_whole(replay)
    step_ns = replay.path_step_ns or replay.step_ns
    why = ""
    if whole_ns != step_ns:
        why = (
            f" The path is {text(whole_ns, Unit.NS)} a step, more than the mean step of "
            f"{text(step_ns, Unit.NS)}: it runs from where the first rank begins to where the last "
            "one ends."
        )
    ranked = sorted(replay.critical_path, key=lambda each: -each.per_step_ns)
    shown, rest = ranked[:MAX_BARS], ranked[MAX_BARS:]
    cut = ""
    if rest:
        rest_ns = sum(each.per_step_ns for each in rest)
        cut = (
            f" Shown: the {len(shown)} largest; {len(rest)} smaller ones that are listed in the "
            f"JSON result take {text(rest_ns, Unit.NS)} a step."
        )
    if any(each.kind == LATENCY for each in shown):
        cut += LATENCIES
    label = "Longest path by rank and kind of work, per step"
    if replay.path_of != "as recorded":
        label = f"Longest path by rank and kind of work, per step, with: {replay.path_of}"
    heads = ("work", "per step", whole, "kind", "longest piece, from run start")
    return note(HOW_TO_READ + why + cut) + flow(
        label, heads, [_bar(each, whole_ns) for each in shown], are_words=True
    )


def _bar(each: OnPath, whole_ns: float) -> Bar:
    window: str | Markup = NOT_RECORDED
    if each.start_ns is not None and each.end_ns is not None:
        window = window_text(each.start_ns, each.end_ns)
    return Bar(
        head=Markup("rank {} {}").format(each.rank, name(each.type, 60)),
        value=text(each.per_step_ns, Unit.NS),
        start_ns=0.0,
        end_ns=max(0.0, each.per_step_ns),
        also=(
            text(each.per_step_ns / whole_ns, Unit.SHARE),
            name(each.kind, 40),
            window,
        ),
        rank=each.rank,
    )


def _slack(replay: Replayed) -> Markup:
    rows = [
        (each.type, each.total_ns, each.critical_share, each.median_slack_ns, each.kind)
        for each in replay.slack
    ]
    return note(SLACK) + table("Slack by kind of work, as recorded", SLACK_COLUMNS, rows)
