"""The section with charts of bandwidth by size, and the drawing of one."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.reports.test_communication_section import OPERATION, words
from tracekit.reports.sections.bandwidth_by_size import render
from tracekit.reports.size_chart import HEIGHT, LEFT, Point, SizeChart, size_chart
from tracekit.traffic import Traffic


def page(healthy, **changes):
    operations = (replace(OPERATION, **changes),)
    return render(
        replace(healthy, traffic=Traffic(n_instances=1, n_unmatched=0, operations=operations))
    )


def test_sizes_and_the_fit_are_said(healthy):
    said = words(page(healthy))
    assert "21 µs latency, 317 GB/s bus bandwidth, both cost the same at 7.64 MB" in said
    assert "192 B 4 31.5 µs 44.8 µs 5 MB/s" in said
    assert "all_reduce of dp (8 ranks: 0–7)" in said


def test_a_single_size_shows_no_course(healthy):
    assert page(healthy, sizes=OPERATION.sizes[:1]) is None
    assert render(healthy) is None


def test_without_a_fit_only_points_are_drawn(healthy):
    body = str(page(healthy, fit=None))
    assert "<circle" in body
    assert "<polyline" not in body
    assert 'class="roof"' not in body


def test_the_fabrics_roof_is_drawn_and_said(healthy):
    shown = page(healthy, roof_gb_s=450.0, fabric="NVLink 4 (18 links)")
    assert "NVLink 4 (18 links) carry 450 GB/s in dp (8 ranks: 0–7)" in words(shown)
    assert 'class="fabric"' in str(shown)
    assert "fabric 450 GB/s" in words(shown)
    assert "reduced in a switch" not in words(shown)


def test_more_than_links_carry_was_reduced_in_a_switch(healthy):
    sizes = (OPERATION.sizes[0], replace(OPERATION.sizes[1], busbw_gb_s=480.0))
    said = words(page(healthy, roof_gb_s=450.0, fabric="NVLink 4", sizes=sizes))
    assert "reduced in a switch (NVLink SHARP, SHARP)" in said


def test_a_hostile_group_stays_text(healthy):
    body = str(page(healthy, group="</svg><script>alert(1)</script>"))
    assert "<script>" not in body


POINTS = [
    Point(size_bytes=1e3, gb_s=1.0, n_calls=1, p50_ns=1e3),
    Point(size_bytes=1e5, gb_s=100.0, n_calls=4, p50_ns=1e3),
]


def test_places_on_both_axes():
    # bytes from 10³ to 10⁵ over x = 62 to 328, GB/s from 10⁰ to 10² over y = 180 to 12
    body = str(size_chart(SizeChart(caption="c", points=POINTS)))
    places = re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', body)
    assert places == [("62.0", "180.0"), ("328.0", "12.0")]
    assert (LEFT, HEIGHT - 40) == (62, 180)
    assert "1 kB: 1 GB/s, 1 calls, 1 µs each" in body


def test_the_curve_is_half_the_roof_at_half_the_size():
    chart = SizeChart(caption="c", points=POINTS, roof_gb_s=100.0, half_bytes=1e4)
    curve = re.search(r'points="([^"]+)"', str(size_chart(chart)))[1].split()
    middle = next(place for place in curve if place.startswith("195.0,"))  # 10⁴ bytes
    # log10 of 50 GB/s is 1.699 of 2 decades: 180 - 0.8495 × 168
    assert float(middle.split(",")[1]) == pytest.approx(37.3, abs=0.05)


def test_nothing_is_drawn_without_a_bandwidth():
    assert size_chart(SizeChart(caption="c", points=[])) == ""
