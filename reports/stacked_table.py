"""Bars stacked from parts, a table row each: they can be read, copied and printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from tracekit.reports.components import name
from tracekit.units import Unit, text

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Part:
    """What a part of the bars is called, and the class of its colour."""

    label: str
    colour: str


@dataclass(frozen=True, slots=True)
class Stack:
    """A row: its headings, and the ns of each part (null: not known)."""

    heads: tuple[str | None, ...]
    parts_ns: tuple[float | None, ...]


def stacked_table(
    caption: str, heads: Sequence[str], parts: Sequence[Part], rows: Sequence[Stack]
) -> Markup:
    """The table, with the legend of its parts in its head; all bars share one scale."""
    longest = max((_total(row) for row in rows), default=0.0)
    columns = Markup("").join(
        Markup('<th scope="col" class="n"><span class="swatch {}"></span>{}</th>').format(
            part.colour, part.label
        )
        for part in parts
    )
    return Markup(
        '<div class="scroll" role="group" tabindex="0" aria-label="{caption}">'
        '<table class="stacked"><caption>{caption}</caption><thead><tr>{heads}'
        '<th scope="col" aria-hidden="true"></th><th scope="col" class="n">In all</th>{columns}'
        "</tr></thead><tbody>{body}</tbody></table></div>"
    ).format(
        caption=caption,
        heads=Markup("").join(Markup('<th scope="col">{}</th>').format(head) for head in heads),
        columns=columns,
        body=Markup("").join(_row(row, parts, longest) for row in rows),
    )


def _total(row: Stack) -> float:
    return sum(ns for ns in row.parts_ns if ns)


def _row(row: Stack, parts: Sequence[Part], longest: float) -> Markup:
    first, *others = row.heads
    bar = Markup("").join(
        Markup('<i class="{}" style="width:{:.2f}%"></i>').format(part.colour, 100 * ns / longest)
        for part, ns in zip(parts, row.parts_ns, strict=True)
        if ns and longest > 0
    )
    return Markup(
        '<tr><th scope="row">{}</th>{}<td class="stack" aria-hidden="true">{}</td>'
        '<td class="n">{}</td>{}</tr>'
    ).format(
        _named(first),
        Markup("").join(Markup("<td>{}</td>").format(_named(head)) for head in others),
        bar,
        text(_total(row), Unit.NS),
        Markup("").join(
            Markup('<td class="n">{}</td>').format("–" if ns is None else text(ns, Unit.NS))
            for ns in row.parts_ns
        ),
    )


def _named(head: str | None) -> str | Markup:
    return "–" if head is None else name(head)
