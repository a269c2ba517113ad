"""Charts: the numbers that travel are those of the result, and Plotly accepts the figures."""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from dataclasses import replace

import plotly.graph_objects as go

from tracekit.reports.charts import VIEWS, heat_map, kept_steps, numbers, stacked_bars
from tracekit.reports.mean_step import PARTS


def payload(markup):
    return json.loads(re.search(r"<script[^>]*>(.*)</script>", markup)[1])


def floats(encoded):
    data = base64.b64decode(encoded)
    return struct.unpack(f"<{len(data) // 4}f", data)


def test_cells_hold_every_part_of_every_rank_and_step(straggler):
    data = payload(numbers(straggler))
    cells = floats(data["cells"])
    assert len(cells) == len(PARTS) * 8 * 4
    idle, rank, step = 6, 5, 2
    assert cells[(idle * 8 + rank) * 4 + step] == 25e6
    assert data["steps"] == [0, 1, 2, 3]
    assert data["averaged"] == [1, 2]
    assert data["faulty"] == [5]


def test_means_are_those_of_the_averaged_steps(straggler):
    waiting = 2
    mean = floats(payload(numbers(straggler))["mean"])
    assert mean[waiting * 8 : waiting * 8 + 8] == (20e6,) * 5 + (0,) + (20e6,) * 2


def test_a_step_that_a_rank_lacks_is_not_a_number(straggler):
    rows = tuple(row for row in straggler.breakdown if (row.rank, row.step) != (3, 1))
    cells = floats(payload(numbers(replace(straggler, breakdown=rows)))["cells"])
    n_missing = sum(math.isnan(cell) for cell in cells)
    assert n_missing == len(PARTS)


def test_several_devices_of_a_rank_are_told_apart(straggler):
    rows = tuple(
        replace(row, rank=row.rank // 2, device=row.rank % 2) for row in straggler.breakdown
    )
    data = payload(numbers(replace(straggler, breakdown=rows)))
    assert data["labels"][:2] == ["rank 0, device 0", "rank 0, device 1"]
    assert data["ranks"][:4] == [0, 0, 1, 1]


def test_a_long_run_keeps_its_slowest_steps(large):
    rows = tuple(
        replace(row, step=row.step + 20 * late, dur_ns=row.dur_ns + 10**6 * late)
        for row in large.breakdown
        for late in (0, 1)
    )
    assert kept_steps(replace(large, breakdown=rows)) == tuple(range(20, 40))


def test_nothing_measured_makes_an_empty_block(single):
    data = payload(numbers(single))
    assert (data["ranks"], data["steps"], data["cells"], data["shown"]) == ([], [], "", [])


def test_own_time_leaves_out_waiting_alone():
    assert [PARTS[i].label for i in range(len(PARTS)) if i not in VIEWS[0].parts] == [
        "Exposed waiting"
    ]


def test_plotly_accepts_the_figures():
    for markup in (heat_map("Heat map"), stacked_bars("Bars")):
        go.Figure(payload(markup))
