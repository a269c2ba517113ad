"""Heat maps as tables: every cell is a number that can be read, copied and reached by keyboard.

A page of a large job has room for some bytes a cell and no more: a cell is its value and its
colour, and the page's script says the sentence of a cell from the table's pattern.
"""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from tracekit.units import Unit, text

N_COLOURS = 10
MAX_WIDE = 12
"""Columns whose cells show their value: more fit no screen, so theirs are squares of colour."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A value, and words that the pattern of the table may name; a marked one is pointed out."""

    value: float
    also: tuple[str, ...] = ()
    is_marked: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A row: its heading, the rank it is filtered by, and a cell or none for each column.

    `aside` is a value that stands beside the heading, without a colour.
    """

    head: str
    rank: int | None
    cells: tuple[Cell | None, ...]
    aside: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """A heat map. `says` is the sentence of a cell and `blank` that of one without a value.

    In both `{row}`, `{column}`, `{value}` and `{0}`, `{1}` … stand for the row's and the column's
    heading, the cell's value and its words.
    """

    caption: str
    corner: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    says: str
    blank: str
    low: float
    high: float
    unit: Unit = Unit.NS
    aside: str = ""


def heat_table(heat: Heat) -> Markup:
    """The table in a frame that scrolls, its scale, and a line that says the cell under focus."""
    aside = (heat.aside,) if heat.aside else ()
    heads = Markup("").join(
        Markup('<th scope="col">{}</th>').format(head) for head in (heat.corner, *aside)
    ) + Markup("").join(
        Markup('<th scope="col" class="narrow">{}</th>').format(head) for head in heat.columns
    )
    body = Markup("\n").join(_row(heat, row) for row in heat.rows)
    return Markup(
        '{scale}<div class="scroll" role="group" aria-label="{caption}">'
        '<table class="heat{size}" data-says="{says}" data-blank="{blank}">'
        "<caption>{caption}</caption><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
        '</div><p class="note readout" aria-live="polite">'
        "Point at a cell, or walk over the cells with the arrow keys, to read it here.</p>"
    ).format(
        scale=_scale(heat),
        caption=heat.caption,
        size=" dense" if len(heat.columns) > MAX_WIDE else "",
        says=heat.says,
        blank=heat.blank,
        heads=heads,
        body=body,
    )


def colour(heat: Heat, value: float) -> int:
    """The step of the scale that a value falls on: 0 to 9."""
    span = heat.high - heat.low
    share = (value - heat.low) / span if span > 0 else 1.0
    return min(N_COLOURS - 1, max(0, int(share * N_COLOURS)))


def _scale(heat: Heat) -> Markup:
    steps = Markup("").join(Markup('<i class="h{}"></i>').format(i) for i in range(N_COLOURS))
    low, high = text(heat.low, heat.unit), text(heat.high, heat.unit)
    return Markup('<p class="scale">{} <span aria-hidden="true">{}</span> {}</p>').format(
        "0" if heat.low == 0 else low, steps, high
    )


def _row(heat: Heat, row: Row) -> Markup:
    """One row; end tags are left out, as HTML allows: there are thousands of cells."""
    marks = Markup("") if row.rank is None else Markup(' data-rank="{}"').format(row.rank)
    aside = Markup("<td>{}").format(row.aside) if heat.aside else ""
    cells = Markup("").join(_cell(heat, cell) for cell in row.cells)
    return Markup('<tr{}><th scope="row">{}{}{}').format(marks, row.head, aside, cells)


def _cell(heat: Heat, cell: Cell | None) -> Markup:
    if cell is None:
        return Markup("<td class=hx>")
    also = Markup(' data-also="{}"').format("|".join(cell.also)) if cell.also else ""
    mark = Markup(" data-marked") if cell.is_marked else ""
    return Markup("<td class=h{}{}{}>{}").format(
        colour(heat, cell.value), also, mark, text(cell.value, heat.unit)
    )
