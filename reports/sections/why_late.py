"""Why the late rank is late: what it does longer than the median peer, part by part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from tracekit.findings import Status, ranked
from tracekit.reports.components import NOT_RECORDED, anchor, found, name, note
from tracekit.reports.flow import Bar, flow
from tracekit.units import Unit, text
from tracekit.waiting import LATENESS, WHY_LATE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.findings import Cell, Evidence, Finding
    from tracekit.results import Result

ORDER = 32
TITLE = "Why the late rank is late"

DETECTOR = "straggler-rank"
MAX_FINDINGS = 8
MAX_PARTS = 12
HEADS = ("part", "more than the peer", "this rank", "median peer")

HOW_TO_READ = (
    "Each bar starts where the one above it ends: to the right what the late rank spends more on "
    "than the median peer, to the left what it spends less on. The last one ends at the lateness "
    "that they add up to, all per step."
)


@dataclass(frozen=True, slots=True)
class Extra:
    """One part of the time before a late arrival: own, peer's, and own less peer's, in ns."""

    part: str
    own_ns: float | None
    peer_ns: float | None
    extra_ns: float


def render(result: Result, /) -> Markup | None:
    """Bars for each straggler found; None where none has its lateness cut into parts."""
    stragglers = [f for f in found(ranked(result.findings), Status.FOUND) if f.id == DETECTOR]
    figures = [
        _figure(finding, evidence)
        for finding in stragglers
        for evidence in finding.evidence
        if _is_cut(evidence)
    ]
    if not figures:
        return None
    cut = ""
    if len(figures) > MAX_FINDINGS:
        cut = f" Shown: {MAX_FINDINGS} of {len(figures):,}; the others stand with their findings."
    return note(HOW_TO_READ + cut) + Markup("").join(figures[:MAX_FINDINGS])


def _is_cut(evidence: Evidence) -> bool:
    """Whether the table has parts, each with a number, and the lateness as its last row."""
    rows = evidence.rows
    return (
        evidence.title == WHY_LATE
        and len(rows) > 1
        and all(len(row) == 4 and _number(row[3]) is not None for row in rows)
        and rows[-1][0] == LATENESS
    )


def _figure(finding: Finding, evidence: Evidence) -> Markup:
    *parts, total = (
        Extra(str(part), _number(own), _number(peer), _number(extra) or 0.0)
        for part, own, peer, extra in evidence.rows
    )
    shown = _largest_first(parts)
    ends = [0.0]
    for part in shown:
        ends.append(ends[-1] + part.extra_ns)
    bars = [
        _bar(part, start, end, "more" if part.extra_ns >= 0 else "less")
        for part, start, end in zip(shown, ends, ends[1:], strict=False)
    ]
    return Markup('<h3><a href="#{}">{}</a></h3>{}').format(
        anchor(finding),
        name(finding.title, 160),
        flow(
            f"Parts of the lateness of {_who(finding)}, per step",
            HEADS,
            [*bars, _bar(total, 0.0, total.extra_ns, "total")],
        ),
    )


def _who(finding: Finding) -> str:
    return f"rank {finding.ranks[0]}" if len(finding.ranks) == 1 else "the late ranks"


def _largest_first(parts: Sequence[Extra]) -> list[Extra]:
    """All parts, the smallest of many as one, so that they still add up."""
    by_size = sorted(parts, key=lambda part: -abs(part.extra_ns))
    kept, rest = by_size[:MAX_PARTS], by_size[MAX_PARTS:]
    if rest:
        kept.append(
            Extra(f"{len(rest):,} smaller parts", None, None, sum(part.extra_ns for part in rest))
        )
    return sorted(kept, key=lambda part: -part.extra_ns)


def _bar(part: Extra, start_ns: float, end_ns: float, kind: str) -> Bar:
    sign = "\u2212" if part.extra_ns < 0 else "+" if part.extra_ns and kind != "total" else ""
    return Bar(
        head=part.part,
        value=sign + text(abs(part.extra_ns), Unit.NS),
        start_ns=start_ns,
        end_ns=end_ns,
        kind=kind,
        also=(_time(part.own_ns), _time(part.peer_ns)),
    )


def _time(ns: float | None) -> str | Markup:
    return NOT_RECORDED if ns is None else text(ns, Unit.NS)


def _number(cell: Cell) -> float | None:
    return float(cell) if isinstance(cell, int | float) and not isinstance(cell, bool) else None
