"""What the step waits for in the end: its longest path, and the slack of all that is not on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from tracekit.findings import Column
from tracekit.reports.components import NOT_RECORDED, name, note, table, window_text
from tracekit.reports.flow import Bar, flow
from tracekit.reports.replayed import trusted
from tracekit.units import Unit, text

if TYPE_CHECKING:
    from tracekit.findings import Result
    from tracekit.replays import OnPath, Replayed

ORDER = 26
TITLE = "What the step waits for in the end"

MAX_BARS = 16
MAX_EXCESS_SHARE = 0.005

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
    Column("Kind of work"),
    Column("Time a step, all ranks", Unit.NS),
    Column("of it critical", Unit.SHARE),
    Column("Slack, median piece", Unit.NS),
    Column("Which is"),
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
    listed_ns = sum(each.per_step_ns for each in replay.critical_path)
    step_ns = replay.path_step_ns or replay.step_ns
    whole_ns, whole, why = step_ns, "of the step", ""
    if listed_ns > step_ns * (1 + MAX_EXCESS_SHARE):
        whole_ns, whole = listed_ns, "of the path"
        why = (
            f" The path is {text(listed_ns, Unit.NS)} a step, more than the mean step of "
            f"{text(step_ns, Unit.NS)}: it runs from where the first rank begins to where the last "
            "one ends."
        )
    shown = sorted(replay.critical_path, key=lambda each: -each.per_step_ns)[:MAX_BARS]
    cut = ""
    if len(shown) < len(replay.critical_path):
        rest_ns = listed_ns - sum(each.per_step_ns for each in shown)
        cut = (
            f" Shown: the {len(shown)} largest; {len(replay.critical_path) - len(shown)} smaller "
            f"ones that are listed in the JSON result take {text(rest_ns, Unit.NS)} a step."
        )
    if any(each.kind == LATENCY for each in shown):
        cut += LATENCIES
    label = "Longest path by rank and kind of work, per step"
    if replay.path_of != "as recorded":
        label = f"Longest path by rank and kind of work, per step, with: {replay.path_of}"
    heads = ("work", "per step", whole, "which is", "longest piece, from run start")
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
