"""Communication by group and operation: bytes, bandwidth, latency, and what no compute hid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Column
from tracekit.reports.components import note, table
from tracekit.units import Unit, text

if TYPE_CHECKING:
    from markupsafe import Markup

    from tracekit.findings import Result
    from tracekit.traffic import OperationTraffic

ORDER = 38
TITLE = "Communication by group"

GB = 1e9
MAX_OPERATIONS_BY_SIZE = 12
HOW_TO_READ = (
    "Times are transfers of whole collectives, from the last arrival on: waiting for a late rank "
    "is not the network's. Bus bandwidth is what a link carries, as nccl-tests count it, in 10⁹ "
    "bytes a second: compare it with what nccl-tests reach on the same nodes. Excess: transfers "
    "less the median of their size, added up. A question mark: what a group is for was "
    "inferred from what it does and where its ranks lie."
)
A_STEP = (
    "Of a mean step of one rank. Hidden is what ran while compute ran too. Calls that run at the "
    "same time count each by itself, so that sums can exceed the exposed communication of a step."
)
BY_SIZE = (
    "Latency and bandwidth are fitted, t = latency + bytes / bandwidth, where sizes differ enough. "
    "Below the size at which both cost the same, merging calls buys more than bandwidth does."
)
COLUMNS = (
    Column("Group"),
    Column("Parallel"),
    Column("Operation"),
    Column("Calls", Unit.COUNT),
    Column("Bytes", Unit.BYTES),
    Column("Median", Unit.NS),
    Column("p99", Unit.NS),
    Column("Excess", Unit.NS),
    Column("Bus bandwidth", Unit.BYTES_PER_S),
    Column("Which is"),
)
STEP_COLUMNS = (
    Column("Group"),
    Column("Operation"),
    Column("Time a step", Unit.NS),
    Column("Exposed transfer", Unit.NS),
    Column("Exposed waiting", Unit.NS),
    Column("Exposed, not split", Unit.NS),
    Column("Hidden", Unit.NS),
)
SIZE_COLUMNS = (
    Column("Group"),
    Column("Operation"),
    Column("Bytes a call", Unit.BYTES),
    Column("Calls", Unit.COUNT),
    Column("Median", Unit.NS),
    Column("p99", Unit.NS),
    Column("Bus bandwidth", Unit.BYTES_PER_S),
)


def render(result: Result, /) -> Markup | None:
    """Three tables: each operation, its mean step, its sizes; None without communication."""
    traffic = result.traffic
    if traffic is None:
        return None
    operations = traffic.operations
    alone = ""
    if traffic.n_unmatched:
        alone = (
            f" {traffic.n_unmatched:,} of {traffic.n_instances:,} calls were recorded by one rank "
            "alone: their waiting and transfer cannot be told apart."
        )
    page = note(HOW_TO_READ + alone) + table(
        "Collectives and messages, whole trace", COLUMNS, [_row(each) for each in operations]
    )
    stepped = [each for each in operations if each.step_ns is not None]
    if stepped:
        page += note(A_STEP) + table(
            "Exposed and hidden, mean step of a rank", STEP_COLUMNS, [_step(e) for e in stepped]
        )
    sized = [each for each in operations[:MAX_OPERATIONS_BY_SIZE] if len(each.sizes) > 1]
    if sized:
        fits = " ".join(_fit(each) for each in sized if each.fit is not None)
        page += note(f"{BY_SIZE} {fits}".strip()) + table(
            "Transfers by size",
            SIZE_COLUMNS,
            [_size(each, number) for each in sized for number in range(len(each.sizes))],
        )
    return page


def _row(each: OperationTraffic) -> tuple[str | int | float | None, ...]:
    return (
        each.group,
        f"{each.dimension}?" if each.is_dimension_inferred and each.dimension else each.dimension,
        each.operation,
        each.n_calls,
        each.total_bytes,
        each.p50_ns,
        each.p99_ns,
        each.excess_ns,
        _bytes_per_s(each.busbw_gb_s),
        _which_is(each),
    )


def _which_is(each: OperationTraffic) -> str | None:
    if each.is_bound:
        return "at least: ranks are missing"
    return f"bound by {each.bound.value}" if each.bound else None


def _step(each: OperationTraffic) -> tuple[str | float | None, ...]:
    return (
        each.group,
        each.operation,
        each.step_ns,
        each.exposed_transfer_ns,
        each.exposed_wait_ns,
        each.exposed_unsplit_ns,
        each.hidden_ns,
    )


def _size(each: OperationTraffic, number: int) -> tuple[str | int | float | None, ...]:
    size = each.sizes[number]
    return (
        each.group,
        each.operation,
        size.size_bytes,
        size.n_calls,
        size.p50_ns,
        size.p99_ns,
        _bytes_per_s(size.busbw_gb_s),
    )


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


def _bytes_per_s(gb_s: float | None) -> float | None:
    return None if gb_s is None else gb_s * GB
