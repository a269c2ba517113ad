"""The summary in a terminal: one screen, plain text where the output is piped.

Everything is a `Text`, never console markup: "[red]" in a kernel name stays what it is. Control
characters are replaced, so that a name cannot move the cursor or recolour the screen.
"""

from __future__ import annotations

import shutil
import textwrap
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from tracekit.findings import Severity, Status, ranked
from tracekit.reports.components import SEVERITY_LABELS, counted, found, ranks_text
from tracekit.reports.first_screen import facts, headline, notices, overall, weighty_remarks
from tracekit.reports.mean_step import PARTS, basis_sentence, job_mean, mean_steps
from tracekit.reports.replayed import replay_alone
from tracekit.units import Unit, text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tracekit.findings import Finding
    from tracekit.results import Result

MAX_FINDINGS = 4
MAX_LINES = 30
MAX_SENTENCE_LINES = 4
MAX_WARNING_LINES = 3
MIN_WARNING_LINES = 3
N_OTHER_COLUMNS = 8 + 10 + 11 + 4 * 2
"""What the table of findings takes beside title and cause, with the space between columns."""
MAX_FACT_LINES = 2

STYLES = {
    "critical": "bold red",
    "warning": "bold yellow",
    "info": "bold cyan",
    "clear": "bold green",
    "unknown": "bold",
}
PART_STYLES = (
    "on blue",
    "on cyan",
    "on red",
    "on yellow",
    "on magenta",
    "on green",
    "on bright_black",
)


def summary(result: Result, *, width: int | None = None) -> RenderableType:
    """Verdict, findings, mean step, counts, warnings: at most `MAX_LINES` lines of 80 columns.

    Args:
        result: What to summarise.
        width: Columns to fill; the terminal's own width by default.
    """
    columns = max(40, width or shutil.get_terminal_size((80, 24)).columns)
    problems = found(ranked(result.findings), Status.FOUND)
    shown = problems[:MAX_FINDINGS]
    above: list[RenderableType] = [*_verdict(result, columns), *_facts(result, columns)]
    below: list[RenderableType] = [
        Text(""),
        *_mean_step(result, columns),
        _counts(result, len(problems), columns),
    ]
    n_lines = len(above) + len(below) + (len(shown) + 2 if shown else 0)
    # Titles take two lines each where the screen has room for them.
    has_room = n_lines + len(shown) <= MAX_LINES - MIN_WARNING_LINES
    n_lines += len(shown) if has_room else 0
    table: list[RenderableType] = []
    if shown:
        table = [Text(""), _findings(shown, columns, has_room=has_room)]
    warned = _warnings(result, columns, max(MAX_LINES - n_lines, MIN_WARNING_LINES))
    return Group(*above, *table, *below, *warned)


def plain(value: str, n_chars: int) -> str:
    """One line of printable text of at most `n_chars` characters."""
    # "\ufffd" stands for what a terminal would obey: escape sequences, bidirectional overrides.
    printable = "".join(char if char.isprintable() else "\ufffd" for char in value[: 4 * n_chars])
    return printable if len(printable) <= n_chars else f"{printable[: n_chars - 1]}…"


def _verdict(result: Result, columns: int) -> list[Text]:
    verdict = overall(result)
    first, *rest = headline(result)[:3]
    lines = _wrapped(f"{verdict.label}: {first}", columns, MAX_SENTENCE_LINES)
    texts = [Text(line) for line in lines]
    texts[0].stylize(STYLES[verdict.kind], 0, len(verdict.label))
    for sentence in rest:
        texts += map(Text, _wrapped(sentence, columns, MAX_SENTENCE_LINES))
    return texts


def _wrapped(sentence: str, columns: int, n_lines: int, indent: str = "") -> list[str]:
    """A sentence over at most `n_lines` lines; only what does not fit there is cut."""
    return textwrap.wrap(
        plain(sentence, n_lines * columns),
        columns,
        subsequent_indent=indent,
        max_lines=n_lines,
        placeholder=" …",
        break_on_hyphens=False,  # "--run NAME" is copied
    )


def _facts(result: Result, columns: int) -> list[Text]:
    shown = [
        plain(f"{label.lower()} {value}", columns)
        for label, value in facts(result.run, replay_alone(result))
    ]
    return [Text(line, style="dim") for line in _lines(shown, " · ", columns)[:MAX_FACT_LINES]]


def _findings(problems: tuple[Finding, ...], columns: int, *, has_room: bool) -> Table:
    """A row per finding, of two lines where there is room. Only the titles give way."""
    n_cause = max(len(finding.cause.value) if finding.cause else 5 for finding in problems)
    n_title = max(columns - n_cause - N_OTHER_COLUMNS, 8)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), width=columns)
    table.add_column("Severity", no_wrap=True, width=8)
    table.add_column("Finding", ratio=1, width=n_title)
    table.add_column("Cause", no_wrap=True, width=n_cause)
    table.add_column("Ranks", no_wrap=True, width=10)
    table.add_column("Saves up to", no_wrap=True, justify="right", width=11)
    for finding in problems:
        severity = finding.severity or Severity.INFO
        ranks = ranks_text(finding.ranks) or "-"
        table.add_row(
            Text(SEVERITY_LABELS[severity], style=STYLES[severity.value]),
            Text("\n".join(_wrapped(finding.title, n_title, 2 if has_room else 1))),
            Text(finding.cause.value if finding.cause else "-"),
            Text(ranks if len(ranks) <= 10 else counted(len(finding.ranks), "rank")),
            Text(text(finding.saving.per_step_ns.high, Unit.NS) if finding.saving else "-"),
        )
    return table


def _mean_step(result: Result, columns: int) -> list[Text]:
    """The bar of the mean step over all ranks, and what its letters stand for."""
    parts_ns = job_mean(mean_steps(result))
    total_ns = sum(parts_ns)
    if not total_ns:
        return [Text("No breakdown: no step and no device event was measured.")]
    bar = Text()
    for part, style, n_cells in zip(PARTS, PART_STYLES, _cells(parts_ns, columns), strict=True):
        bar.append(part.letter * n_cells, style=style)
    shares = zip(PARTS, parts_ns, strict=True)
    legend = [
        f"{part.letter} {part.label.lower()} {text(part_ns / total_ns, Unit.SHARE)}"
        for part, part_ns in shares
        if part_ns
    ]
    return [
        Text(plain(basis_sentence(result), columns), style="dim"),
        bar,
        *(Text(line) for line in _lines(legend, "  ", columns)),
    ]


def _lines(items: list[str], separator: str, columns: int) -> list[str]:
    """The items in lines that break only between them."""
    lines = [items[0]]
    for item in items[1:]:
        joined = f"{lines[-1]}{separator}{item}"
        if len(joined) <= columns:
            lines[-1] = joined
        else:
            lines.append(item)
    return lines


def _cells(parts_ns: tuple[float, ...], n_cells: int) -> list[int]:
    """Cells per part that add up to `n_cells`: each end is rounded, so no rounding adds up."""
    total_ns = sum(parts_ns)
    ends = [round(n_cells * sum(parts_ns[: i + 1]) / total_ns) for i in range(len(parts_ns))]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def _counts(result: Result, n_problems: int, columns: int) -> Text:
    n_by_status = {status: len(found(result.findings, status)) for status in Status}
    hidden = n_problems - MAX_FINDINGS
    parts = [
        f"{counted(hidden, 'more finding')}" if hidden > 0 else "",
        f"{n_by_status[Status.CLEAR]} checked and fine",
        f"{n_by_status[Status.SKIPPED]} not checked for want of data",
        f"{n_by_status[Status.FAILED]} failed" if n_by_status[Status.FAILED] else "",
    ]
    return Text(plain(" · ".join(part for part in parts if part), columns))


def _warnings(result: Result, columns: int, n_lines: int) -> list[Text]:
    """What weakens the figures, each in full: the run as a whole, then the capture's gravest.

    Those for which `n_lines` leave no room are counted.
    """
    remarks = (f"{remark.check}: {remark.detail}" for remark in weighty_remarks(result))
    warnings = [
        _wrapped(f"! {sentence}", columns, MAX_WARNING_LINES, "  ")
        for sentence in (*notices(result), *remarks)
    ]
    lines: list[str] = []
    for i, warning in enumerate(warnings):
        n_left = len(warnings) - i - 1
        if len(lines) + len(warning) + (n_left > 0) > n_lines:
            lines.append(f"! {counted(n_left + 1, 'more warning' if lines else 'warning')}")
            break
        lines += warning
    return [Text(line, style="yellow") for line in lines]
