"""Where the step goes: the mean step of every rank, split into parts that add up to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from tracekit.findings import Column
from tracekit.reports.charts import legend, stacked_bars
from tracekit.reports.components import note, notice, table
from tracekit.reports.mean_step import (
    MAX_ROWS,
    PARTS,
    Basis,
    MeanStep,
    basis,
    basis_sentence,
    faulty_ranks,
    job_mean,
    mean_steps,
    means_of,
    row_labels,
    shown_rows,
)
from tracekit.units import Unit, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.findings import Cell
    from tracekit.results import Result

ORDER = 30
TITLE = "Where the step goes"

PART_COLUMNS = tuple(Column(part.label, Unit.NS) for part in PARTS)


def render(result: Result, /) -> Markup | None:
    """Stacked bars and their table; where nothing was measured, the sentence that says so."""
    means = mean_steps(result)
    if not means:
        return notice("No device event and no step was measured: there is no breakdown.", "unknown")
    shown = shown_rows(means, faulty_ranks(result))
    body = (
        note(_summary(result, means))
        + legend()
        + stacked_bars(f"Mean step of {len(shown)} devices, split into {len(PARTS)} parts")
        + _cut_note(len(means))
        + Markup("<details><summary>Breakdown as a table</summary>{}</details>").format(
            _table(means, shown, Markup('data-source="mean"'), "Mean step per rank")
        )
    )
    if result.whole and basis(result) is not Basis.WHOLE:
        body += _whole(result)
    return body


def _summary(result: Result, means: Sequence[MeanStep]) -> str:
    parts_ns = job_mean(means)
    total_ns = sum(parts_ns) or 1.0
    largest = sorted(range(len(PARTS)), key=lambda i: -parts_ns[i])[:3]
    shares = ", ".join(
        f"{text(parts_ns[i] / total_ns, Unit.SHARE)} {PARTS[i].label.lower()}"
        for i in largest
        if parts_ns[i]
    )
    return f"{basis_sentence(result)} Over all ranks: {shares}."


def _cut_note(n_devices: int) -> Markup:
    if n_devices <= MAX_ROWS:
        return Markup('<p class="note" id="bars-note"></p>')
    sentence = (
        f"{MAX_ROWS} of {n_devices:,} devices: the ranks at fault, those with the longest own time "
        "(step less exposed waiting) and, last, those with the shortest. Filter by rank for others."
    )
    return Markup('<p class="note" id="bars-note">{}</p>').format(sentence)


def _whole(result: Result) -> Markup:
    """The same split over the whole trace, for what lies outside the averaged steps."""
    means = means_of(result.whole)
    shown = shown_rows(means, faulty_ranks(result))
    caption = "Whole trace per rank, first to last device event"
    if len(shown) < len(means):
        caption += f": {len(shown)} of {len(means):,} devices, extremes of own time"
    return Markup("<details><summary>Over the whole trace</summary>{}</details>").format(
        _table(means, shown, Markup(""), caption)
    )


def _table(
    means: Sequence[MeanStep], shown: Sequence[int], attributes: Markup, caption: str
) -> Markup:
    devices = [(mean.rank, mean.device) for mean in means]
    has_devices = any("device" in label for label in row_labels(devices))
    columns = (Column("Rank"), *((Column("Device"),) if has_devices else ()))
    rows: list[tuple[Cell, ...]] = []
    for i in shown:
        mean = means[i]
        device = (mean.device,) if has_devices else ()
        rows.append((mean.rank, *device, mean.dur_ns, *mean.parts_ns))
    return table(
        caption, (*columns, Column("Total", Unit.NS), *PART_COLUMNS), rows, attributes=attributes
    )
