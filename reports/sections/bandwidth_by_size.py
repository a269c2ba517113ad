"""Bandwidth by size: what calls of each size reach, and latency and roof by the fitted line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from tracekit.findings import Column
from tracekit.reports.components import note, table
from tracekit.reports.size_chart import GB, Point, SizeChart, size_chart
from tracekit.units import Unit, text

if TYPE_CHECKING:
    from tracekit.results import Result
    from tracekit.traffic import OperationTraffic

ORDER = 37
TITLE = "Bandwidth by size"

MAX_OPERATIONS, MAX_CHARTS = 12, 6
HOW_TO_READ = (
    "Latency and bandwidth are fitted, t = latency + bytes / bandwidth, where sizes differ enough. "
    "Points far below the curve are slow for their size; where all lie on its rising part, merging "
    "calls buys more than bandwidth does. The dashed line is the roof that the curve comes close "
    "to: compare it with nccl-tests on the same nodes."
)
COLUMNS = (
    Column("Group"),
    Column("Operation"),
    Column("Bytes a call", Unit.BYTES),
    Column("Calls", Unit.COUNT),
    Column("Median", Unit.NS),
    Column("p99", Unit.NS),
    Column("Bus bandwidth", Unit.BYTES_PER_S),
)


def render(result: Result, /) -> Markup | None:
    """Charts of the operations with most time, and the table; None without several sizes."""
    if result.traffic is None:
        return None
    sized = [each for each in result.traffic.operations if len(each.sizes) > 1][:MAX_OPERATIONS]
    if not sized:
        return None
    fabrics = " ".join(dict.fromkeys(_fabric(each) for each in sized if each.fabric))
    fits = " ".join(_fit(each) for each in sized if each.fit is not None)
    charts = Markup("").join(size_chart(_chart(each)) for each in sized[:MAX_CHARTS])
    return (
        note(HOW_TO_READ)
        + Markup('<div class="size-charts">{}</div>').format(charts)
        + (note(f"{fits} {fabrics}".strip()) if fits or fabrics else Markup(""))
        + table(
            "Transfers by size",
            COLUMNS,
            [_row(each, number) for each in sized for number in range(len(each.sizes))],
        )
    )


def _chart(each: OperationTraffic) -> SizeChart:
    fit = each.fit
    return SizeChart(
        caption=f"{each.operation} of {each.group}",
        points=[
            Point(
                size_bytes=size.size_bytes,
                gb_s=size.busbw_gb_s,
                n_calls=size.n_calls,
                p50_ns=size.p50_ns,
            )
            for size in each.sizes
            if size.busbw_gb_s is not None
        ],
        roof_gb_s=fit.busbw_gb_s if fit else None,
        half_bytes=fit.half_bytes if fit else None,
        fabric_gb_s=each.roof_gb_s,
    )


def _row(each: OperationTraffic, number: int) -> tuple[str | int | float | None, ...]:
    size = each.sizes[number]
    return (
        each.group,
        each.operation,
        size.size_bytes,
        size.n_calls,
        size.p50_ns,
        size.p99_ns,
        None if size.busbw_gb_s is None else size.busbw_gb_s * GB,
    )


def _fabric(each: OperationTraffic) -> str:
    """What the fabric carries; above that a switch must have reduced."""
    roof_gb_s = each.roof_gb_s or 0.0
    above = ""
    if any(size.busbw_gb_s is not None and size.busbw_gb_s > roof_gb_s for size in each.sizes):
        above = "; what lies above was reduced in a switch (NVLink SHARP, SHARP)"
    roof = text(roof_gb_s * GB, Unit.BYTES_PER_S)
    return f"{each.fabric} carry {roof} in {each.group}{above}."


def _fit(each: OperationTraffic) -> str:
    """The fitted line of one operation in words."""
    fit = each.fit
    if fit is None:
        return ""
    rate = "no limit by bytes"
    if fit.busbw_gb_s is not None:
        rate = f"{text(fit.busbw_gb_s * GB, Unit.BYTES_PER_S)} bus bandwidth"
    half = ""
    if fit.half_bytes:
        half = f", both cost the same at {text(fit.half_bytes, Unit.BYTES)}"
    return (
        f"{each.operation} of {each.group}: {text(fit.latency_ns, Unit.NS)} latency, {rate}{half} "
        f"(error {text(fit.error_share, Unit.SHARE)})."
    )
