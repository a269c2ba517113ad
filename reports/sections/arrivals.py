"""Arrivals at single collectives: when each member enters and leaves, and who comes last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from tracekit.reports.components import counted, name, note, window_text
from tracekit.units import Unit, text

if TYPE_CHECKING:
    from tracekit.results import Result
    from tracekit.waiting import Arrival, Meeting

ORDER = 35
TITLE = "Arrivals at single collectives"

N_LAST, N_FIRST = 24, 8
"""Members shown of a large group: those that come last, and a few of those that wait longest."""

HOW_TO_READ = (
    "A bar runs from the moment a member enters to the moment it leaves; the vertical line is the "
    "moment the last one enters, and until then nothing moves."
)
LEGEND = Markup(
    '<ul class="legend"><li><span class="swatch part-2"></span><b>Waiting</b> until the last one '
    'enters</li><li><span class="swatch part-1"></span><b>Transfer</b> once all are there</li>'
    '<li><span class="swatch absent"></span><b>Late</b> not there yet while others wait</li></ul>'
)


def render(result: Result, /) -> Markup | None:
    """One figure a collective, the first one open; None where none is listed."""
    if result.waiting is None:
        return None
    meetings = [meeting for meeting in result.waiting.meetings if meeting.arrivals]
    if not meetings:
        return None
    figures = Markup("").join(_figure(meeting, i) for i, meeting in enumerate(meetings))
    return note(f"{HOW_TO_READ} Listed: where the most waiting was caused.") + LEGEND + figures


def _figure(meeting: Meeting, position: int) -> Markup:
    step = "" if meeting.step is None else f", step {meeting.step}"
    return Markup(
        "<details{opened}><summary>{operation} in {group}{step}: rank {culprit} comes last"
        "</summary>{facts}{table}</details>"
    ).format(
        opened=Markup(" open") if position == 0 else "",
        operation=name(meeting.operation, 60),
        group=name(meeting.group or "a group without a name", 60),
        step=step,
        culprit=meeting.culprit,
        facts=note(_facts(meeting)),
        table=_table(meeting, position),
    )


def _facts(meeting: Meeting) -> str:
    last_ns = max(each.entered_ns for each in meeting.arrivals)
    sentences = [f"The last one enters {text(last_ns, Unit.NS)} after the first."]
    if meeting.transfer_ns is not None:
        sentences.append(f"The transfer then takes {text(meeting.transfer_ns, Unit.NS)}.")
    sentences.append(_clock(meeting))
    at = window_text(meeting.start_ns, meeting.start_ns + _span_ns(meeting))
    return " ".join((*sentences, f"In the trace: {at} from the start of the run."))


def _clock(meeting: Meeting) -> str:
    """Whether the times can be compared, and how far they may be off."""
    error = text(meeting.error_ns, Unit.NS)
    if not meeting.is_aligned:
        known = f", give or take {error}" if meeting.error_ns else ""
        return (
            "Clocks are not aligned: the members are laid by their common end, so only the "
            f"lengths of the bars are measured{known}."
        )
    if not meeting.error_ns:
        return "Times can be compared: no error of the clocks is seen."
    return f"Clocks are aligned; times may be off by {error} (the band around the line)."


def _span_ns(meeting: Meeting) -> int:
    return max(each.left_ns for each in meeting.arrivals)


def _table(meeting: Meeting, position: int) -> Markup:
    span_ns = _span_ns(meeting) or 1
    shown = meeting.arrivals[::-1]
    n_members = len(shown)
    cut = Markup("")
    if n_members > N_LAST + N_FIRST:
        shown = (*shown[:N_LAST], *shown[-N_FIRST:])
        cut = note(f"The last {N_LAST} and the first {N_FIRST} of the {n_members:,} listed.")
    last_ns = max(each.entered_ns for each in meeting.arrivals)
    label = f"Collective {position + 1}: {counted(n_members, 'member')}, the last to enter first"
    return Markup(
        '<div class="scroll" role="group" tabindex="0" aria-label="{label}">'
        '<table class="arrivals" style="--last:{last};--error:{error}"><caption>{label}</caption>'
        '<thead><tr><th scope="col">member</th><th scope="col" class="n">enters</th>'
        '<th scope="col" class="n">leaves</th>'
        '<th scope="col">0 to {span} since the first entered</th></tr></thead>'
        "<tbody>{body}</tbody></table></div>{cut}"
    ).format(
        label=label,
        last=_percent(last_ns, span_ns),
        error=_percent(meeting.error_ns, span_ns) if meeting.is_aligned else 0,
        span=text(span_ns, Unit.NS),
        body=Markup("\n").join(_row(each, span_ns) for each in shown),
        cut=cut,
    )


def _row(each: Arrival, span_ns: int) -> Markup:
    return Markup(
        '<tr data-rank="{rank}"{kind}><th scope="row">rank {rank}{late}<td class="n">+{entered}'
        '<td class="n">+{left}<td class="track" style="--a:{start};--z:{end}">'
    ).format(
        rank=each.rank,
        kind=Markup(' class="late"') if each.is_late else "",
        late=Markup(" <b>late</b>") if each.is_late else "",
        entered=text(each.entered_ns, Unit.NS),
        left=text(each.left_ns, Unit.NS),
        start=_percent(each.entered_ns, span_ns),
        end=_percent(each.left_ns, span_ns),
    )


def _percent(ns: int, span_ns: int) -> str:
    return f"{100 * ns / span_ns:.2f}"
