"""Bars on one axis, a table row each: they can be read, copied and printed without a script."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from tracekit.reports.components import name

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A row: its heading, its value as text, where its bar starts and ends, further cells.

    `kind` is `own`, `more`, `less` or `total`, which colour it; `rank` that the page's filter
    knows it by.
    """

    head: str | Markup
    value: str
    start_ns: float
    end_ns: float
    kind: str = "more"
    also: tuple[str | Markup, ...] = ()
    rank: int | None = None


def flow(
    label: str, heads: Sequence[str], bars: Sequence[Bar], *, are_words: bool = False
) -> Markup:
    """The table of the bars.

    Args:
        label: What it shows.
        heads: Headings: of the rows, of the values, then of the further cells.
        bars: From top to bottom; the axis reaches from 0 to the last of their ends, or below 0.
        are_words: The further cells are sentences rather than numbers.
    """
    ends = [0.0, *(ns for bar in bars for ns in (bar.start_ns, bar.end_ns))]
    axis = (min(ends), max(ends))
    row_head, value_head, *also = heads
    number = Markup("") if are_words else Markup(' class="n"')
    others = Markup("").join(
        Markup('<th scope="col"{}>{}</th>').format(number, head) for head in also
    )
    return Markup(
        '<div class="scroll" role="group" tabindex="0" aria-label="{label}">'
        '<table class="flow" style="--zero:{zero}"><caption>{label}</caption><thead><tr>'
        '<th scope="col">{row}</th><th scope="col" class="n">{value}</th>'
        '<th scope="col" aria-hidden="true"></th>{others}</tr></thead>'
        "<tbody>{body}</tbody></table></div>"
    ).format(
        label=label,
        zero=_percent(0.0, axis),
        row=row_head,
        value=value_head,
        others=others,
        body=Markup("").join(_row(bar, axis, number) for bar in bars),
    )


def _row(bar: Bar, axis: tuple[float, float], number: Markup) -> Markup:
    cells = Markup("").join(Markup("<td{}>{}</td>").format(number, cell) for cell in bar.also)
    return Markup(
        '<tr class="{kind}"{rank}><th scope="row">{head}</th><td class="n">{value}</td>'
        '<td class="track" aria-hidden="true" style="--a:{start};--z:{end}"></td>{cells}</tr>'
    ).format(
        kind=bar.kind,
        rank="" if bar.rank is None else Markup(' data-rank="{}"').format(bar.rank),
        head=bar.head if isinstance(bar.head, Markup) else name(bar.head),
        value=bar.value,
        start=_percent(min(bar.start_ns, bar.end_ns), axis),
        end=_percent(max(bar.start_ns, bar.end_ns), axis),
        cells=cells,
    )


def _percent(ns: float, axis: tuple[float, float]) -> str:
    low, high = axis
    return f"{100 * (ns - low) / ((high - low) or 1.0):.2f}"
