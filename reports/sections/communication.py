"""Communication by group and operation: bytes, bandwidth, and what no compute hid, by phase too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Column
from tracekit.reports.components import note, table
from tracekit.reports.stacked_table import Part, Stack, stacked_table
from tracekit.units import Unit, text

if TYPE_CHECKING:
    from markupsafe import Markup

    from tracekit.results import Result
    from tracekit.traffic import OperationTraffic, PhaseTraffic

ORDER = 36
TITLE = "Communication by group"

GB = 1e9
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
PARTS = (
    Part("Exposed transfer", "part-2"),
    Part("Exposed waiting", "part-3"),
    Part("Exposed, not split", "part-4"),
    Part("Hidden", "part-1"),
)
NOT_KNOWN = "not known"
PHASES = (
    "By phase: what another thread than the training thread launches is backward, what is launched "
    "inside a mark of the optimizer's step is the optimizer's."
)


def render(result: Result, /) -> Markup | None:
    """Each operation, its mean step, and the step by phase; None without communication."""
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
        page += note(A_STEP) + stacked_table(
            "Exposed and hidden, mean step of a rank",
            ("Group", "Operation"),
            PARTS,
            [Stack((each.group, each.operation), _parts(each)) for each in stepped],
        )
    if traffic.phases:
        page += note(PHASES) + stacked_table(
            "By phase, mean step of a rank",
            ("Phase", "Parallel", "Operation", "Calls"),
            PARTS,
            [_phase(each) for each in traffic.phases],
        )
    return page


def _phase(each: PhaseTraffic) -> Stack:
    calls = text(each.n_calls, Unit.COUNT)
    heads = (each.phase or NOT_KNOWN, each.dimension, each.operation or NOT_KNOWN, calls)
    return Stack(heads, _parts(each))


def _parts(each: OperationTraffic | PhaseTraffic) -> tuple[float | None, ...]:
    return (
        each.exposed_transfer_ns,
        each.exposed_wait_ns,
        each.exposed_unsplit_ns,
        each.hidden_ns,
    )


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


def _bytes_per_s(gb_s: float | None) -> float | None:
    return None if gb_s is None else gb_s * GB
