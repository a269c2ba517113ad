"""Charts: Plotly figures without numbers, and the one block of numbers that all draw from.

The numbers of all ranks and steps travel once, as 32-bit floats. The page's script fills the
figures in, so that a filter, another view or the other theme needs no second copy.
"""

from __future__ import annotations

import base64
import math
import sys
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from tracekit.reports.mean_step import (
    COMMUNICATION,
    COMPUTE,
    IDLE,
    MAX_ROWS,
    PARTS,
    WAITING,
    faulty_ranks,
    mean_steps,
    row_labels,
    shown_rows,
)
from tracekit.reports.templating import script_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.results import Result

MAX_CELLS = 20_480
"""Ranks times steps that the page carries (1,024 ranks, 20 steps): 0.8 MB of its 6 MB."""

ALL_PARTS = tuple(range(len(PARTS)))


@dataclass(frozen=True, slots=True)
class View:
    """One way to colour the heat map: the sum of some parts, as time or as a share of the step."""

    label: str
    caption: str
    parts: tuple[int, ...]
    is_share: bool


VIEWS = (
    View(
        "Own time",
        "Step time less exposed waiting. "
        "The rank with the longest own time is the one the others wait for.",
        tuple(i for i in ALL_PARTS if i != WAITING),
        is_share=False,
    ),
    View("Step time", "How long the step took on this rank's device.", ALL_PARTS, is_share=False),
    View(
        "Exposed communication",
        "Share of the step in communication with no compute running, waiting included.",
        COMMUNICATION,
        is_share=True,
    ),
    View("Idle", "Share of the step in which nothing runs on the device.", (IDLE,), is_share=True),
    View("Compute", "Share of the step in which a compute kernel runs.", COMPUTE, is_share=True),
)


def kept_steps(result: Result) -> tuple[int, ...]:
    """The steps the page carries: all, or as many of the slowest as fit into `MAX_CELLS`."""
    durations: dict[int, list[int]] = {}
    devices = set()
    for row in result.breakdown:
        if row.step is not None:
            durations.setdefault(row.step, []).append(row.dur_ns)
            devices.add((row.rank, row.device))
    n_kept = max(1, MAX_CELLS // max(1, len(devices)))
    slowest = sorted(durations, key=lambda s: (-sum(durations[s]) / len(durations[s]), s))
    return tuple(sorted(slowest[:n_kept]))


def numbers(result: Result) -> Markup:
    """The block of numbers: parts of every device and step, and of every device's mean step."""
    means = mean_steps(result)
    devices = [(mean.rank, mean.device) for mean in means]
    stepped = sorted({(row.rank, row.device) for row in result.breakdown} | set(devices))
    by_device = {(mean.rank, mean.device): mean for mean in means}
    steps = kept_steps(result)
    blank = (math.nan,) * len(PARTS)
    mean_ns = [by_device[device].parts_ns if device in by_device else blank for device in stepped]
    position = {device: i for i, device in enumerate(stepped)}
    payload = {
        "ranks": [rank for rank, _ in stepped],
        "labels": row_labels(stepped),
        "steps": steps,
        "averaged": sorted(set(result.run.averaged_steps) & set(steps)),
        "faulty": faulty_ranks(result),
        "parts": [part.label for part in PARTS],
        "cells": _typed(_cells(result, position, steps)),
        "mean": _typed(mean_ns[i][p] for p in ALL_PARTS for i in range(len(stepped))),
        "shown": [position[devices[i]] for i in shown_rows(means, faulty_ranks(result))],
        "waiting": WAITING,
        "maxRows": MAX_ROWS,
        "views": [
            {"label": v.label, "caption": v.caption, "parts": v.parts, "isShare": v.is_share}
            for v in VIEWS
        ],
    }
    return _data_block("numbers", payload)


def heat_map(label: str) -> Markup:
    """The heat map of ranks and steps."""
    trace = {
        "type": "heatmap",
        "colorscale": "Cividis",
        "hoverongaps": False,
        "colorbar": {"thickness": 12, "outlinewidth": 0, "tickfont": {"size": 11}},
    }
    layout = {
        "margin": {"l": 80, "r": 8, "t": 8, "b": 54},
        "xaxis": {
            "type": "category",
            "title": {"text": "step", "standoff": 6},
            "showgrid": False,
            "fixedrange": True,
        },
        "yaxis": {"type": "category", "showgrid": False, "fixedrange": True},
    }
    return _chart("heat", label, {"data": [trace], "layout": layout})


def stacked_bars(label: str) -> Markup:
    """One bar per device, stacked from the parts of its mean step."""
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": part.label,
            "marker": {"line": {"width": 0}},
            "hovertemplate": f"%{{y}}<br>{part.label}: %{{x:.3s}}s<extra></extra>",
        }
        for part in PARTS
    ]
    layout = {
        "barmode": "stack",
        "bargap": 0.15,
        "showlegend": False,
        "margin": {"l": 80, "r": 12, "t": 8, "b": 54},
        "xaxis": {
            "title": {"text": "time per step", "standoff": 6},
            "tickformat": "~s",
            "ticksuffix": "s",
            "fixedrange": True,
        },
        "yaxis": {"type": "category", "autorange": "reversed", "fixedrange": True},
    }
    return _chart("bars", label, {"data": traces, "layout": layout})


def legend() -> Markup:
    """The parts of a step with their colours and meanings, once for all bars."""
    items = Markup("").join(
        Markup('<li><span class="swatch part-{}"></span><b>{}</b> {}</li>').format(
            i, part.label, part.meaning
        )
        for i, part in enumerate(PARTS)
    )
    return Markup('<ul class="legend">{}</ul>').format(items)


def view_buttons() -> Markup:
    """Buttons that switch the heat map between its views; the first one is on."""
    buttons = Markup("").join(
        Markup('<button type="button" data-view="{}" aria-pressed="{}">{}</button>').format(
            i, "true" if i == 0 else "false", view.label
        )
        for i, view in enumerate(VIEWS)
    )
    return Markup(
        '<div class="views" role="group" aria-label="What the colour shows">{}</div>'
        '<p class="note" id="view-caption">{}</p>'
    ).format(buttons, VIEWS[0].caption)


def _chart(kind: str, label: str, figure: dict[str, object]) -> Markup:
    """An empty chart with its figure; the script draws it, and says so where it cannot."""
    return Markup(
        '<div class="chart" id="chart-{kind}" role="img" aria-label="{label}">'
        '<p class="note">Drawing needs scripts. The table below has the same figures.</p></div>'
        "{data}"
    ).format(kind=kind, label=label, data=_data_block(f"figure-{kind}", figure))


def _data_block(block_id: str, payload: object) -> Markup:
    return Markup('<script type="application/json" id="{}">{}</script>').format(
        block_id, script_json(payload)
    )


def _cells(
    result: Result, position: dict[tuple[int, int], int], steps: tuple[int, ...]
) -> array[float]:
    """Parts by devices by steps, flat; NaN where a device has no such step."""
    column = {step: i for i, step in enumerate(steps)}
    n_cells = len(position) * len(steps)
    cells = array("f", [math.nan]) * (n_cells * len(PARTS))
    for row in result.breakdown:
        if row.step not in column:
            continue
        at = position[row.rank, row.device] * len(steps) + column[row.step]
        for i, part in enumerate(PARTS):
            cells[i * n_cells + at] = getattr(row, part.field)
    return cells


def _typed(values: Iterable[float]) -> str:
    """Little-endian 32-bit floats as base64."""
    floats = array("f", values)
    if sys.byteorder == "big":
        floats.byteswap()
    return base64.b64encode(floats.tobytes()).decode("ascii")
