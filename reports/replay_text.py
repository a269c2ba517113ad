"""What a replay says, for a terminal and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from rich.console import Group
from rich.table import Table
from rich.text import Text

from tracekit.reports.replayed import (
    ALONE,
    INFERRED,
    MIN_SLOWDOWN,
    path_whole,
    share_sentences,
    slowed_alone,
    straggler_sentence,
    why_not_sentence,
    worth_listing,
)
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


def summary(slowdowns: Slowdowns, replay: Replayed, ranks: Sequence[int] = ()) -> RenderableType:
    """One screen: the step and the replay's error, answers, what stragglers cost, the path."""
    parts: list[RenderableType] = [Text(sentence) for sentence in _sentences(slowdowns, replay)]
    if replay.answers:
        rows = [
            (each.question, text(each.step_ns, Unit.NS), _gain(each.gained_ns, replay.step_ns))
            for each in replay.answers
        ]
        parts.append(_table("What if", ("change", "mean step", "gained"), rows))
    slowed = [
        (name, text(ratio, Unit.RATIO))
        for name, ratio in worth_listing(slowed_alone(slowdowns, ranks))
    ]
    if slowed and slowdowns.slowdown >= MIN_SLOWDOWN:
        parts.append(_table(ALONE, ("keeps its own times", "slowdown"), slowed[:MAX_ROWS]))
    whole_ns, whole = path_whole(replay)
    path = [
        (
            "" if each.rank is None else str(each.rank),
            each.type if each.kind == each.type else f"{each.kind}: {each.type}",
            text(each.per_step_ns, Unit.NS),
            text(each.per_step_ns / whole_ns, Unit.SHARE),
        )
        for each in replay.critical_path[:MAX_ROWS]
    ]
    parts.append(
        _table(f"Longest path, {replay.path_of}", ("rank", "work", "per step", whole), path)
    )
    return Group(*parts)


def _sentences(slowdowns: Slowdowns, replay: Replayed) -> list[str]:
    step, error = text(replay.step_ns, Unit.NS), text(replay.error_share, Unit.SHARE)
    said = [f"Mean step {text(replay.measured_ns, Unit.NS)}, replayed {step} (error {error})."]
    if not replay.is_trusted:
        said.append(why_not_sentence(replay))
    if replay.is_inferred:
        said.append(INFERRED)
    second = [straggler_sentence(slowdowns, replay)]
    if slowdowns.slowdown >= MIN_SLOWDOWN:
        ratio = text(slowdowns.slowdown, Unit.RATIO)
        second = [f"Stragglers slow the step by {ratio}.", *second, *share_sentences(slowdowns)]
    return [" ".join(said), " ".join(second)]


def _gain(gained_ns: float, step_ns: float) -> str:
    return f"{text(gained_ns, Unit.NS)} ({text(gained_ns / step_ns, Unit.SHARE)})"


def _table(title: str, heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Group:
    table = Table(box=None, pad_edge=False)
    for place, head in enumerate(heads):
        table.add_column(head, justify="left" if place < len(heads) - 1 else "right")
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    return Group(Text(visible(title), style="italic"), table)  # a table's own title wraps with it
