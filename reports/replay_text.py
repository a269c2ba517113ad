"""What a replay says, for a terminal and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from rich.console import Group
from rich.table import Table
from rich.text import Text

from tracekit.replays import MAX_ERROR_SHARE
from tracekit.reports.templating import visible
from tracekit.units import Unit, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from tracekit.replays import Replayed, Slowdowns

MAX_ROWS = 8


def as_json_text(slowdowns: Slowdowns, replay: Replayed) -> str:
    """The slowdowns as JSON, by the names that were published; with the answers, if any."""
    fields = msgspec.to_builtins(slowdowns)
    if replay.answers:
        fields["answers"] = msgspec.to_builtins(replay.answers)
        fields["step_ns"] = replay.step_ns
    return msgspec.json.format(msgspec.json.encode(fields), indent=1).decode() + "\n"


def summary(slowdowns: Slowdowns, replay: Replayed) -> RenderableType:
    """One screen: the step and the replay's error, answers, what stragglers cost, the path."""
    parts: list[RenderableType] = [Text(sentence) for sentence in _sentences(slowdowns, replay)]
    if replay.answers:
        rows = [
            (each.question, text(each.step_ns, Unit.NS), _gain(each.gained_ns, replay.step_ns))
            for each in replay.answers
        ]
        parts.append(_table("What if", ("change", "mean step", "gained"), rows))
    worst = {
        "type": slowdowns.by_type,
        "replica": slowdowns.by_dp,
        "stage": slowdowns.by_stage,
    }
    slowed = [
        (f"{what} {name}", text(ratio, Unit.RATIO))
        for what, ratios in worst.items()
        for name, ratio in list(ratios.items())[:3]
        if ratio >= 1.005
    ]
    if slowed:
        parts.append(_table("Slowdown by stragglers", ("of", "slowdown alone"), slowed))
    path = [
        (
            "" if each.rank is None else str(each.rank),
            each.type if each.kind == each.type else f"{each.kind}: {each.type}",
            text(each.per_step_ns, Unit.NS),
            text(each.per_step_ns / replay.path_step_ns, Unit.SHARE),
        )
        for each in replay.critical_path[:MAX_ROWS]
    ]
    parts.append(
        _table(f"Longest path, {replay.path_of}", ("rank", "work", "per step", "of the step"), path)
    )
    return Group(*parts)


def _sentences(slowdowns: Slowdowns, replay: Replayed) -> list[str]:
    step = text(replay.step_ns, Unit.NS)
    error = text(replay.error_share, Unit.SHARE)
    first = f"Mean step {text(replay.measured_ns, Unit.NS)}, replayed {step} (error {error})."
    if not replay.is_trusted:
        limit = text(MAX_ERROR_SHARE, Unit.SHARE)
        first += f" The replay misses the step by more than {limit}: claim nothing from it."
    if replay.is_inferred:
        first += " Waits between streams were not recorded and are inferred from the times."
    if slowdowns.slowdown < 1:
        longer = text(1 / slowdowns.slowdown - 1, Unit.SHARE)
        second = (
            f"Stragglers do not slow the step: with all work alike it would take {longer} more."
        )
        return [first, second]
    return [first, straggling(slowdowns)]


def straggling(slowdowns: Slowdowns) -> str:
    """What stragglers cost, in words."""
    if slowdowns.slowdown < 1:
        longer = text(1 / slowdowns.slowdown - 1, Unit.SHARE)
        return f"Stragglers do not slow the step: with all work alike it would take {longer} more."
    cost = (
        f"Stragglers slow the step by {text(slowdowns.slowdown, Unit.RATIO)}: "
        f"{text(slowdowns.waste, Unit.SHARE)} of the GPU time."
    )
    n_stages = len(slowdowns.by_stage)
    shares = [
        f"{text(share, Unit.SHARE)} of it goes with {what}"
        for share, what in (
            (slowdowns.worker_share, "the slowest 3 % of the workers"),
            (slowdowns.last_stage_share if n_stages > 1 else None, "the last stage"),
        )
        if share is not None
    ]
    return f"{cost} {'; '.join(shares).capitalize()}." if shares else cost


def _gain(gained_ns: float, step_ns: float) -> str:
    sign = "-" if gained_ns < 0 else ""
    return f"{sign}{text(abs(gained_ns), Unit.NS)} ({gained_ns / step_ns:.1%})"


def _table(title: str, heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for place, head in enumerate(heads):
        table.add_column(head, justify="left" if place < len(heads) - 1 else "right")
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    return table
