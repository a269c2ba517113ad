"""Bandwidth against size, drawn as SVG: it can be printed and needs no script.

Both axes are logarithmic. A point is what calls of one size reach (the median), the curve what the
fitted line says of all sizes, the dashed line the bandwidth that it comes close to: the roof.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from tracekit.units import Unit, text

WIDTH, HEIGHT = 340, 220
LEFT, RIGHT, TOP, BOTTOM = 62, 12, 12, 40
N_CURVE = 48
GB = 1e9
RADIUS = 4
"""Points that lie alone; those of many calls are larger, up to twice as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Calls of one size: bytes, bandwidth in GB/s, how many, and the median transfer in ns."""

    size_bytes: float
    gb_s: float
    n_calls: int
    p50_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeChart:
    """A chart: its caption, the points, and the fitted roof (GB/s) with its half size (bytes).

    `fabric_gb_s` is what the fabric can carry, where that is known.
    """

    caption: str
    points: Sequence[Point]
    roof_gb_s: float | None = None
    half_bytes: float | None = None
    fabric_gb_s: float | None = None


def size_chart(chart: SizeChart) -> Markup:
    """The chart in a figure with its caption; empty without a point above 0."""
    points = [p for p in chart.points if p.gb_s > 0 and p.size_bytes > 0]
    if not points:
        return Markup("")
    roofs = [roof for roof in (chart.roof_gb_s, chart.fabric_gb_s) if roof]
    x = _Axis([p.size_bytes for p in points], LEFT, WIDTH - RIGHT)
    y = _Axis([*(p.gb_s for p in points), *roofs], HEIGHT - BOTTOM, TOP)
    most = max(p.n_calls for p in points)
    body = [
        _ticks(x, y),
        _curve(chart, x, y),
        _roof(chart.roof_gb_s, "fitted", "roof", y),
        _roof(chart.fabric_gb_s, "fabric", "fabric", y),
        *(_dot(point, most, x, y) for point in points),
    ]
    return Markup(
        '<figure class="size-chart"><svg viewBox="0 0 {w} {h}" role="img" aria-label="{label}">'
        "{body}</svg><figcaption>{caption}</figcaption></figure>"
    ).format(
        w=WIDTH,
        h=HEIGHT,
        label=f"Bus bandwidth by size: {chart.caption}",
        body=Markup("").join(body),
        caption=chart.caption,
    )


class _Axis:
    """A logarithmic axis over whole decades, between two edges of the drawing."""

    def __init__(self, values: Sequence[float], low_at: float, high_at: float) -> None:
        self.first = math.floor(math.log10(min(values)))
        self.last = max(self.first + 1, math.ceil(math.log10(max(values))))
        self.low_at, self.high_at = low_at, high_at

    def at(self, value: float) -> float:
        share = (math.log10(value) - self.first) / (self.last - self.first)
        return self.low_at + min(1.0, max(0.0, share)) * (self.high_at - self.low_at)

    @property
    def decades(self) -> list[float]:
        every = 1 + (self.last - self.first) // 5
        return [10.0**power for power in range(self.first, self.last + 1, every)]


def _ticks(x: _Axis, y: _Axis) -> Markup:
    lines = [
        Markup(
            '<line class="grid" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"/>'
            '<text x="{0:.1f}" y="{3}" text-anchor="middle">{4}</text>'
        ).format(x.at(size), TOP, HEIGHT - BOTTOM, HEIGHT - BOTTOM + 15, text(size, Unit.BYTES))
        for size in x.decades
    ]
    lines += [
        Markup(
            '<line class="grid" x1="{0}" x2="{1}" y1="{2:.1f}" y2="{2:.1f}"/>'
            '<text x="{3}" y="{4:.1f}" text-anchor="end">{5}</text>'
        ).format(
            LEFT,
            WIDTH - RIGHT,
            y.at(gb_s),
            LEFT - 5,
            y.at(gb_s) + 4,
            text(gb_s * GB, Unit.BYTES_PER_S),
        )
        for gb_s in y.decades
    ]
    lines.append(
        Markup('<text x="{}" y="{}" text-anchor="middle">bytes a call</text>').format(
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6
        )
    )
    return Markup("").join(lines)


def _curve(chart: SizeChart, x: _Axis, y: _Axis) -> Markup:
    """Bandwidth that the fitted line gives: roof × bytes / (bytes + half)."""
    if not chart.roof_gb_s or chart.half_bytes is None:
        return Markup("")
    powers = (x.first + (x.last - x.first) * i / N_CURVE for i in range(N_CURVE + 1))
    sizes = [10.0**power for power in powers]
    lowest = 10.0**y.first
    places = [
        f"{x.at(size):.1f},{y.at(gb_s):.1f}"
        for size in sizes
        if (gb_s := chart.roof_gb_s * size / (size + chart.half_bytes)) >= lowest
    ]
    return Markup('<polyline class="fit" points="{}"/>').format(" ".join(places))


def _roof(gb_s: float | None, word: str, kind: str, y: _Axis) -> Markup:
    if not gb_s:
        return Markup("")
    return Markup(
        '<line class="{0}" x1="{1}" x2="{2}" y1="{3:.1f}" y2="{3:.1f}"/>'
        '<text class="of-{0}" x="{4}" y="{5:.1f}" text-anchor="end">{6} {7}</text>'
    ).format(
        kind,
        LEFT,
        WIDTH - RIGHT,
        y.at(gb_s),
        WIDTH - RIGHT - 2,
        max(TOP + 9, y.at(gb_s) - 4),
        word,
        text(gb_s * GB, Unit.BYTES_PER_S),
    )


def _dot(point: Point, most: int, x: _Axis, y: _Axis) -> Markup:
    radius = RADIUS * (1 + math.sqrt(point.n_calls / most)) / 2 + RADIUS / 4
    said = (
        f"{text(point.size_bytes, Unit.BYTES)}: {text(point.gb_s * GB, Unit.BYTES_PER_S)}, "
        f"{point.n_calls:,} calls, {text(point.p50_ns, Unit.NS)} each"
    )
    return Markup('<circle cx="{:.1f}" cy="{:.1f}" r="{:.1f}"><title>{}</title></circle>').format(
        x.at(point.size_bytes), y.at(point.gb_s), radius, said
    )
