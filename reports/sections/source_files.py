"""Source files: what was read, what was lost of it, and what was left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from tracekit.findings import Column
from tracekit.reports.components import counted, name, note, table
from tracekit.reports.mean_step import MAX_ROWS
from tracekit.units import Unit, text

if TYPE_CHECKING:
    from tracekit.results import Result, SourceFile

ORDER = 80
TITLE = "Files read, and what was left out"

MAX_OTHERS = 20
COLUMNS = (
    Column("Rank"),
    Column("File"),
    Column("Size", Unit.BYTES),
    Column("Events", Unit.COUNT),
    Column("Dropped", Unit.COUNT),
    Column("Why"),
)


def render(result: Result, /) -> Markup | None:
    """Totals, a row per file and the files that lay beside them."""
    source = result.source
    size = text(sum(file.size_bytes for file in source.files), Unit.BYTES)
    n_events = sum(file.n_events for file in source.files)
    total = Markup("Read from {}: {}, {}, {}; {} dropped.").format(
        name(source.path),
        counted(len(source.files), "file"),
        size,
        counted(n_events, "event"),
        f"{source.n_dropped:,}",
    )
    body = note(total)
    if source.files:
        body += _files(source.files)
    if source.others:
        items = Markup("").join(
            Markup("<li>{}</li>").format(name(other, 160)) for other in source.others[:MAX_OTHERS]
        )
        n_hidden = len(source.others) - MAX_OTHERS
        more = note(f"… and {n_hidden:,} more.") if n_hidden > 0 else ""
        body += Markup("<h3>Left out</h3><ul>{}</ul>{}").format(items, more)
    return body


def _files(files: tuple[SourceFile, ...]) -> Markup:
    """All files by rank; of many, those that lost most and then the largest."""
    caption = "Files by rank"
    shown = sorted(files, key=lambda file: (file.rank, file.path))
    if len(files) > MAX_ROWS:
        caption = (
            f"{MAX_ROWS} of {len(files):,} files: those that lost most events, then the largest"
        )
        shown = sorted(files, key=lambda file: (-file.n_dropped, -file.size_bytes, file.rank))
    rows = [
        (
            file.rank,
            name(file.path, 70),
            file.size_bytes,
            file.n_events,
            file.n_dropped,
            name("; ".join(file.why), 200),
        )
        for file in shown[:MAX_ROWS]
    ]
    return table(caption, COLUMNS, rows)
