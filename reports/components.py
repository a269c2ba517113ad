"""Building blocks of the page: names, quantities, badges and tables, each as escaped markup."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING
from urllib.parse import quote

from markupsafe import Markup, escape

from tracekit.findings import Cell, Column, Finding, Range, Severity, Status
from tracekit.reports.mean_step import MAX_ROWS
from tracekit.reports.templating import visible
from tracekit.units import Quantity, Unit, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NOT_RECORDED = Markup('<span class="none" title="not recorded">\u2013</span>')
MAX_NAME_CHARS = 6_000
"""What is kept of one name: the longest C++ template seen is 5 kB."""

SEVERITY_LABELS = {
    Severity.CRITICAL: "Critical",
    Severity.WARNING: "Warning",
    Severity.INFO: "Minor",
}


def name(value: str, n_chars: int = 90) -> Markup:
    """A name from a trace, isolated from the text around it; a long one is cut and expandable."""
    value = visible(value)
    if len(value) <= n_chars:
        return Markup("<bdi>{}</bdi>").format(value)
    full = value[:MAX_NAME_CHARS]
    if len(value) > MAX_NAME_CHARS:
        full += f"… ({len(value) - MAX_NAME_CHARS:,} more characters)"
    return Markup(
        '<bdi class="long" role="button" tabindex="0" aria-expanded="false" title="{}">{}</bdi>'
    ).format(full, shortened(value, n_chars))


def shortened(value: str, n_chars: int) -> str:
    """At most `n_chars` characters: the start and the end, which tell template instances apart."""
    if len(value) <= n_chars:
        return value
    n_tail = n_chars // 4
    return f"{value[: n_chars - n_tail - 1]}…{value[-n_tail:]}"


def badge(label: str, kind: str) -> Markup:
    """A small label whose colour and word both say the kind."""
    return Markup('<span class="badge {}">{}</span>').format(kind, label)


def severity_badge(severity: Severity | None) -> Markup:
    """The badge of a severity; a null is a finding without one."""
    if severity is None:
        return badge("Found", "info")
    return badge(SEVERITY_LABELS[severity], severity.value)


def notice(sentence: str | Markup, kind: str = "info") -> Markup:
    """A sentence that the reader must not miss."""
    return Markup('<p class="notice {}">{}</p>').format(kind, sentence)


def note(sentence: str | Markup) -> Markup:
    """A sentence that explains what is next to it."""
    return Markup('<p class="note">{}</p>').format(sentence)


def quantity_text(quantity: Quantity | None) -> str:
    """A quantity for people, or "not measured"."""
    return "not measured" if quantity is None else str(quantity)


def range_text(span: Range, unit: Unit) -> str:
    """A range for people: one value where both ends print alike."""
    low, high = text(span.low, unit), text(span.high, unit)
    return high if low == high else f"{low} to {high}"


def hours_text(span: Range) -> str:
    """A range of GPU-hours with three digits, as in "94.3 to 118"."""
    low, high = (
        f"{hours:,.0f}" if hours >= 100 else f"{hours:.3g}" for hours in (span.low, span.high)
    )
    return high if low == high else f"{low} to {high}"


def window_text(start_ns: int, end_ns: int) -> str:
    """A time window in seconds since the run's start, exact to the microsecond."""
    start, end = (f"{ns // 10**9:,}.{ns % 10**9 // 1000:06d}" for ns in (start_ns, end_ns))
    return f"{start} s to {end} s"


def ranks_text(ranks: Iterable[int], max_spans: int = 6) -> str:
    """Ranks as spans, as in "0-3, 7" with an en dash; many spans are cut and counted."""
    spans: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    parts = [str(low) if low == high else f"{low}\u2013{high}" for low, high in spans[:max_spans]]
    if len(spans) > max_spans:
        n_hidden = sum(high - low + 1 for low, high in spans[max_spans:])
        parts.append(f"… and {n_hidden:,} more")
    return ", ".join(parts)


def counted(n: int, noun: str) -> str:
    """A count and its noun in the right number, as in "1 rank" and "8 ranks"."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def anchor(finding: Finding) -> str:
    """The fragment that links to a finding; it is also the element's id."""
    return f"finding/{quote(finding.id, safe='')}/{quote(finding.subject, safe='')}"


def cell_text(cell: Cell, unit: Unit) -> Markup:
    """One cell for people: a number in its unit, a name isolated and cut, a null as a dash."""
    match cell:
        case None:
            return NOT_RECORDED
        case bool():
            return escape("yes" if cell else "no")
        case str():
            return name(cell)
        case float() if not math.isfinite(cell):
            return NOT_RECORDED
        case int() if unit is Unit.TEXT:
            return escape(str(cell))
        case _:
            return escape(text(cell, unit))


def table(
    caption: str,
    columns: Sequence[Column],
    rows: Sequence[Sequence[Cell | Markup]],
    *,
    ids: Sequence[str] = (),
    attributes: Markup | None = None,
) -> Markup:
    """A table that can be sorted and scrolls inside itself; more than `MAX_ROWS` rows are cut.

    A row with a column "Rank" or "Step" follows the page's filter. `ids` are the elements' ids of
    the rows, where a link must reach them.
    """
    shown = rows[:MAX_ROWS]
    heads = Markup("").join(_head(column) for column in columns)
    body = Markup("\n").join(
        _row(columns, row, ids[i] if ids else None) for i, row in enumerate(shown)
    )
    cut = Markup("")
    if len(rows) > len(shown):
        cut = note(f"The first {len(shown)} of {len(rows):,} rows; all are in the JSON result.")
    return Markup(
        '<div class="scroll" role="group" tabindex="0" aria-label="{label}">'
        "<table {attributes}><caption>{caption}</caption>"
        "<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>{cut}"
    ).format(
        label=caption[:200],
        attributes=attributes or Markup(""),
        caption=name(caption, 200),
        heads=heads,
        body=body,
        cut=cut,
    )


def found(findings: Iterable[Finding], status: Status) -> tuple[Finding, ...]:
    """The findings of one status, in their order."""
    return tuple(finding for finding in findings if finding.status is status)


def _head(column: Column) -> Markup:
    numeric = Markup("") if column.unit is Unit.TEXT else Markup(' class="n"')
    label = visible(column.label)
    return Markup(
        '<th scope="col"{}><button type="button" class="sort">'
        '<bdi title="{}">{}</bdi></button></th>'
    ).format(numeric, label[:MAX_NAME_CHARS], shortened(label, 40))


def _row(columns: Sequence[Column], row: Sequence[Cell | Markup], row_id: str | None) -> Markup:
    """One row; the cells of rank and step also stand on the row, for the filter."""
    marks = Markup("")
    if row_id is not None:
        marks += Markup(' id="{}" tabindex="-1"').format(row_id)
    for column, cell in zip(columns, row, strict=True):
        key = column.label.strip().lower()
        if key in ("rank", "step") and isinstance(cell, int) and not isinstance(cell, bool):
            marks += Markup(' data-{}="{}"').format(key, cell)
    cells = Markup("").join(
        _cell(cell, column.unit) for column, cell in zip(columns, row, strict=True)
    )
    return Markup("<tr{}>{}</tr>").format(marks, cells)


def _cell(cell: Cell | Markup, unit: Unit) -> Markup:
    if isinstance(cell, Markup):
        return Markup("<td>{}</td>").format(cell)
    if isinstance(cell, str) and "\n" in cell:  # a stack
        lines = Markup("<br>").join(cell_text(line, unit) for line in cell.split("\n"))
        return Markup("<td>{}</td>").format(lines)
    shown = cell_text(cell, unit)
    if isinstance(cell, int | float) and not isinstance(cell, bool) and math.isfinite(cell):
        aligned = Markup("") if unit is Unit.TEXT else Markup(' class="n"')
        return Markup('<td{} data-value="{}">{}</td>').format(aligned, cell, shown)
    return Markup("<td>{}</td>").format(shown)
