"""What to fix: every problem found, the one with the largest saving first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from tracekit.findings import Column, Status, ranked
from tracekit.reports.components import (
    anchor,
    counted,
    found,
    hours_text,
    name,
    note,
    notice,
    quantity_text,
    range_text,
    ranks_text,
    severity_badge,
    table,
    window_text,
)
from tracekit.reports.first_screen import overall
from tracekit.reports.templating import rendered, visible
from tracekit.results import HOST_THREAD
from tracekit.units import Unit, text

if TYPE_CHECKING:
    from tracekit.findings import Evidence, Finding, Saving
    from tracekit.results import Result

ORDER = 10
TITLE = "What to fix"

MAX_CARDS = 40
"""Findings shown in full; the rest stand in one table, since nobody reads a hundred cards."""


def render(result: Result, /) -> Markup | None:
    """A card per problem, or the sentence that there is none."""
    problems = found(ranked(result.findings), Status.FOUND)
    if not problems:
        return _nothing(result)
    device = "rank" if result.run.device_kind == HOST_THREAD else "GPU"
    cards = Markup("").join(
        _card(finding, i, device) for i, finding in enumerate(problems[:MAX_CARDS])
    )
    if len(problems) > MAX_CARDS:
        cards += _rest(problems[MAX_CARDS:])
    if len(problems) > 1:
        overlap = "Savings of different findings overlap: they cannot be added up."
        return note(f"{counted(len(problems), 'finding')}, largest saving first. {overlap}") + cards
    return cards


def _nothing(result: Result) -> Markup:
    n_clear = len(found(result.findings, Status.CLEAR))
    n_skipped = len(found(result.findings, Status.SKIPPED))
    if not n_clear:
        return notice(
            "Nothing could be checked, so this run is not known to be healthy.", "unknown"
        )
    sentence = f"Nothing found that is worth fixing: {counted(n_clear, 'check')} within limits."
    if n_skipped:
        sentence += f" {counted(n_skipped, 'check')} not made for want of data."
    return notice(sentence, overall(result).kind)


def _card(finding: Finding, position: int, device: str) -> Markup:
    scope = finding.scope
    window = ""
    if scope and scope.start_ns is not None and scope.end_ns is not None:
        window = window_text(scope.start_ns, scope.end_ns)
    return rendered(
        "finding.html.j2",
        finding=finding,
        anchor=anchor(finding),
        badge=severity_badge(finding.severity),
        kind=finding.severity.value if finding.severity else "info",
        facts=_facts(finding),
        window=window,
        saving=_saving(finding.saving, device) if finding.saving else None,
        replayed=_replayed(finding),
        evidence=[_evidence(evidence) for evidence in finding.evidence],
        is_open=position == 0,
        name=name,
        visible=visible,
    )


def _facts(finding: Finding) -> list[tuple[str, str | Markup]]:
    """Label and value of what is known about the problem; empty values are left out."""
    victims = finding.scope.victims if finding.scope else ()
    pairs: list[tuple[str, str | Markup]] = [
        ("Ranks at fault", ranks_text(finding.ranks)),
        ("Ranks that wait", ranks_text(victims)),
        ("Groups", _names(finding.groups)),
        ("Phases", _names(finding.phases)),
        ("Steps", ranks_text(finding.steps)),
        ("Measured", quantity_text(finding.measured) if finding.measured else ""),
        ("Limit", quantity_text(finding.limit) if finding.limit else ""),
    ]
    return [(label, value) for label, value in pairs if value]


def _names(names: tuple[str, ...]) -> Markup:
    shown = Markup(", ").join(name(each) for each in names[:8])
    return shown + (f" and {len(names) - 8:,} more" if len(names) > 8 else "")


def _saving(saving: Saving, device: str) -> list[tuple[str, str]]:
    """The saving as value and what it is of: time of GPUs, of ranks where there are none."""
    low, high = text(saving.share, Unit.SHARE), text(saving.share_high, Unit.SHARE)
    currencies = [
        (range_text(saving.per_step_ns, Unit.NS), "per step"),
        (high if low == high else f"{low} to {high}", f"of {device} time"),
    ]
    if saving.gpu_hours_per_day.high > 0:
        currencies.append((hours_text(saving.gpu_hours_per_day), f"{device}-hours per day"))
    return currencies


def _replayed(finding: Finding) -> str:
    """What the replay says of the saving, over all ranks and for those at fault alone."""
    saving = finding.saving
    if saving is None:
        return ""
    alone = "these ranks" if len(finding.ranks) > 1 else "this rank"
    figures = (
        ("replayed over all ranks", saving.replayed_ns),
        (f"{alone} alone, optimistic", saving.alone_ns),
    )
    parts = [f"{of}: {text(ns, Unit.NS)} per step" for of, ns in figures if ns is not None]
    sentence = "; ".join(parts)
    return f"{sentence[:1].upper()}{sentence[1:]}." if parts else ""


def _evidence(evidence: Evidence) -> Markup:
    return table(evidence.title, evidence.columns, evidence.rows)


def _rest(problems: tuple[Finding, ...]) -> Markup:
    columns = (
        Column("Severity"),
        Column("Finding"),
        Column("Ranks at fault"),
        Column("Saving per step, up to", Unit.NS),
    )
    rows = [
        (
            severity_badge(finding.severity),
            name(finding.title),
            ranks_text(finding.ranks),
            finding.saving.per_step_ns.high if finding.saving else None,
        )
        for finding in problems
    ]
    ids = [anchor(finding) for finding in problems]
    return table(f"{len(problems):,} more findings", columns, rows, ids=ids)
