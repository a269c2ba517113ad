"""Collectives reach far less bandwidth than the fabric gives.

What it measures:
    Bus bandwidth of large transfers, from the last arrival on, against what nccl-tests measured
    among as many ranks on as many nodes; without such a measurement against the peak of the fabric.

Formula:
    share = Σ n · (time at the bandwidth of nccl-tests) / Σ n · p50, over operations and sizes that
    both have (sizes of a factor of two). Without them share = busbw / roof of the largest size; the
    roof is the GPUs' fabric within a node, and between nodes the adapters of the members on one.
    Extra time of a step = exposed transfer in the mean step × (1 − share).

Threshold:
    Found when the share of nccl-tests is below `min_share` and the extra time at least
    `min_step_share` of a step, or the share of the roof is below `min_roof_share`. What lies above
    the roof is reduced in a switch (NVLink SHARP, SHARP). Skipped where neither is known.

Evidence:
    Operations and sizes with both bandwidths.

What-if saving:
    Against nccl-tests, by a replay in which the transfers have their bandwidth; high end: all that
    they take longer. Against a roof, which no job reaches, none.

Recommendation:
    Where NCCL's log lists a slow way for these ranks, that is the cause and its cure; else nccl-
    tests on the nodes of the group.

References:
    https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
    https://github.com/NVIDIA/nccl/issues/489 (3 GB/s on 200 Gb/s).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.derive.activity import has_device_events
from tracekit.derive.averages import mean_steps
from tracekit.derive.bandwidths import shares_of_tests
from tracekit.derive.fabrics import NO_HOSTS
from tracekit.derive.links import BETWEEN, WITHIN
from tracekit.derive.savings import saving
from tracekit.detectors import Detector, finding, number, skipped
from tracekit.detectors._cures import transfers_as_measured
from tracekit.detectors._roofs import Reached, bandwidths_of, of_groups, of_tests
from tracekit.detectors._slow_ways import cause_of
from tracekit.findings import Confidence, Finding, Level, Scope, Status
from tracekit.schema import BANDWIDTH_BASELINES, COLLECTIVES
from tracekit.units import Quantity, Unit, limit, text

if TYPE_CHECKING:
    from tracekit.store import Run

MAX_FINDINGS = 8


@dataclass(frozen=True, slots=True)
class Limits:
    """How little of the bandwidth is too little."""

    min_share: float = limit(
        0.5, Unit.SHARE, "Beside compute, which shares memory and multiprocessors, jobs keep 0.7."
    )
    min_roof_share: float = limit(
        0.25, Unit.SHARE, "Healthy fabrics reach half of their peak with 32 MB and more."
    )
    min_step_share: float = limit(
        0.01, Unit.SHARE, "What nothing hides of less than a hundredth is not worth a search."
    )
    min_calls: int = limit(
        4, Unit.COUNT, "The median of fewer calls is that of one or two unlucky ones."
    )


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for each group, and each test, that is too slow; else one for the run."""
    if not has_device_events(run) and not run.n_rows(BANDWIDTH_BASELINES.name):
        why = "without devices, transfers are those of gloo over the network of the hosts"
        return (skipped(DETECTOR, why, is_of_further_source=True),)
    measured = shares_of_tests(run)
    reached, lacking = of_groups(run, set(measured["group"]))
    tested, _ = of_tests(run)
    slow = [*_slower_than_tests(run, measured, limits), *_below_roof(run, reached, limits)]
    slow += _below_roof(run, tested, limits)
    if slow:
        return tuple(slow[:MAX_FINDINGS])
    shares = [*measured["share"].to_list(), *(each.share for each in (*reached, *tested))]
    if not shares:
        reason = lacking[0] if lacking else f"no large collective of a known group. {NO_HOSTS}"
        return (skipped(DETECTOR, reason, is_of_further_source=True),)
    above = next((each for each in (*reached, *tested) if each.share > 1), None)
    bound = limits.min_share if measured.height else limits.min_roof_share
    return (
        finding(
            DETECTOR,
            Status.CLEAR,
            measured=Quantity(min(1.0, *shares), Unit.SHARE),
            limit=Quantity(bound, Unit.SHARE),
            why=_above(above) if above else "",
            evidence=(bandwidths_of(run),),
        ),
    )


def _above(reached: Reached) -> str:
    return (
        f"{reached.reached} is more than links carry ({reached.roof}): the switch reduces "
        "(NVLink SHARP, SHARP)"
    )


def _slower_than_tests(run: Run, rows: pl.DataFrame, limits: Limits) -> list[Finding]:
    means = mean_steps(run)
    if rows.is_empty() or means.is_empty():
        return []
    step_ns = number(means["dur_ns"].mean())
    slow = rows.filter(
        (pl.col("share") < limits.min_share)
        & (pl.col("extra_ns") >= limits.min_step_share * step_ns)
        & (pl.col("n_calls") >= limits.min_calls)
    )
    return [
        _found(
            run,
            row["group"],
            tuple(row["members"]),
            is_between=row["n_nodes"] > 1,
            title=f"Group {row['group']} gets {text(row['share'], Unit.SHARE)} of the bandwidth "
            "that nccl-tests measured",
            measured=Quantity(row["share"], Unit.SHARE),
            limit=Quantity(limits.min_share, Unit.SHARE),
            confidence=Confidence(
                Level.MEDIUM, f"{row['n_calls']} transfers without waiting; nccl-tests ran alone"
            ),
            saving=saving(
                row["extra_ns"],
                row["whole_ns"],
                step_ns,
                means.height,
                "its transfers have the bandwidth of nccl-tests; low end: what nothing hides of "
                f"them, {text(row['extra_ns'], Unit.NS)} a step",
            ),
        )
        for row in slow.iter_rows(named=True)
    ]


def _below_roof(run: Run, reached: list[Reached], limits: Limits) -> list[Finding]:
    """Findings without a saving: how near to the peak a job can come is not known."""
    return [
        _found(
            run,
            each.subject,
            each.ranks,
            is_between=each.is_between,
            title=f"{each.reached} of the {each.roof} of {each.fabric}",
            measured=Quantity(each.share, Unit.SHARE),
            limit=Quantity(limits.min_roof_share, Unit.SHARE),
            confidence=Confidence(
                Level.LOW, f"the peak of {each.fabric}, no measurement, is the yardstick"
            ),
        )
        for each in sorted(reached, key=lambda each: (each.share, each.subject))
        if each.share < limits.min_roof_share
        and (each.n_calls is None or each.n_calls >= limits.min_calls)
    ]


def _found(
    run: Run, subject: str, ranks: tuple[int, ...], *, is_between: bool, **fields: Any
) -> Finding:
    """A slow group; a slow way that the log lists for its ranks is the cause."""
    return finding(
        DETECTOR,
        Status.FOUND,
        subject=subject,
        ranks=ranks,
        groups=(subject,) if ranks else (),
        scope=Scope(),
        evidence=(bandwidths_of(run),),
        **cause_of(run, ranks, BETWEEN if is_between else WITHIN),
        **fields,
    )


DETECTOR = Detector(
    id="low-bus-bandwidth",
    title="Collectives are slower than the fabric",
    clear="Collectives use the fabric",
    needs=(COLLECTIVES,),
    instead=BANDWIDTH_BASELINES,
    how="Record whole steps of all ranks with CUDA activity on, or measure with nccl-tests.",
    limits=Limits,
    detect=detect,
    cure=transfers_as_measured,
)
