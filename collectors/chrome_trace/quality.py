"""How well one rank was captured: the checks a trace file allows, each with a count and a sentence.

A warning means that figures are affected; an info that they rest on less than they could.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.store import Check

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.collectors.chrome_trace.events import Reading
    from tracekit.collectors.chrome_trace.heading import Heading

INFO, WARNING = "info", "warning"
MIN_LINKED_SHARE = 0.98
ROUNDING_NS = 2000
"""Two times in whole µs, each cut or rounded, can be out of order by this much."""


def reading_checks(reading: Reading, heading: Heading, dropped: dict[str, int]) -> Iterator[Check]:
    """What was lost on the way in, and what the file does not say of itself."""
    if reading.cut.why or reading.is_truncated:
        why = reading.cut.why or "the list of events has no end"
        yield Check(
            check="truncated", severity=WARNING, count=1, detail=f"{why}; what was whole is used"
        )
    if reading.n_lost:
        yield Check(
            check="damaged events",
            severity=WARNING,
            count=reading.n_lost,
            detail="events whose JSON could not be mended are left out",
        )
    elif reading.n_repaired_chunks:
        yield Check(
            check="repaired JSON",
            severity=INFO,
            count=reading.n_repaired_chunks,
            detail="parts of the file were mended without losing an event",
        )
    for why, count in dropped.items():
        if count:
            yield Check(
                check=f"dropped: {why}", severity=INFO, count=count, detail="events left out"
            )
    if not heading.is_base_known:
        yield Check(
            check="unknown clock base",
            severity=WARNING,
            count=1,
            detail="baseTimeNanoseconds is missing: times count from the file's own zero",
        )


def device_checks(
    kernels: pl.DataFrame, copies: pl.DataFrame, launches: pl.DataFrame, n_broken: int
) -> Iterator[Check]:
    """Whether device events and launch calls fit together."""
    if n_broken:
        yield Check(
            check="broken durations",
            severity=WARNING,
            count=n_broken,
            detail="negative, past the capture window, or swallowing later events: clipped",
        )
    columns = ("start_ns", "dur_ns", "device", "stream", "correlation")
    events = pl.concat([kernels.select(columns), copies.select(columns)])
    if events.is_empty():
        if launches.height:
            yield Check(
                check="no device events",
                severity=WARNING,
                count=launches.height,
                detail="runtime calls but no kernels: another tool may hold the GPU's counters "
                "(Nsight, DCGM); see 'dcgmi profile --pause'",
            )
        return
    calls = launches.drop_nulls("correlation").group_by("correlation").agg(pl.col("start_ns").min())
    linked = events.join(calls, on="correlation", how="inner", suffix="_call")
    share = linked.height / events.height
    if share < MIN_LINKED_SHARE:
        yield Check(
            check="device events without a launch",
            severity=INFO,
            count=events.height - linked.height,
            detail=f"{100 * (1 - share):.1f} % of the device events were launched before the "
            "capture or by calls it does not hold; they count in the step in which they start",
        )
    is_coarse = _is_in_whole_us(events)
    slack_ns = ROUNDING_NS if is_coarse else 0
    early_ns = pl.col("start_ns_call") - pl.col("start_ns")
    early = linked.filter(early_ns > slack_ns)
    if early.height:
        most_us = early.select(early_ns.max()).item() / 1000
        yield Check(
            check="started before its launch",
            severity=WARNING,
            count=early.height,
            detail=f"{early.height:,} of {linked.height:,} device events, by up to {most_us:,.1f} "
            "µs: device and host clocks of this capture disagree",
        )
    n_zero = events.filter(pl.col("dur_ns") == 0).height
    if n_zero:
        yield Check(
            check="zero durations", severity=INFO, count=n_zero, detail="kept, they take no time"
        )
    overlapping = events.sort("start_ns").filter(
        pl.col("start_ns").shift(-1).over("device", "stream")
        < pl.col("start_ns") + pl.col("dur_ns") - slack_ns
    )
    if overlapping.height:
        yield Check(
            check="overlap on one stream",
            severity=INFO,
            count=overlapping.height,
            detail="programmatic dependent launch, graphs or ROCm; counted once by union",
        )
    if is_coarse:
        yield Check(
            check="whole microseconds",
            severity=INFO,
            count=events.height,
            detail="times have no finer digits: each figure is ±1 µs an event",
        )


def _is_in_whole_us(events: pl.DataFrame) -> bool:
    """Whether no time of the device has digits below 1 µs."""
    since_first = events["start_ns"] - events["start_ns"].min()
    return bool((since_first % 1000 == 0).all() and (events["dur_ns"] % 1000 == 0).all())


def communication_checks(collectives: pl.DataFrame, world_size: int | None) -> Iterator[Check]:
    """What is known of the communication."""
    if collectives.is_empty():
        if (world_size or 1) > 1:
            yield Check(
                check="no communication seen",
                severity=WARNING,
                count=1,
                detail=f"the job has {world_size} ranks and this trace no communication kernel: "
                "record at least one whole step",
            )
        return
    total = collectives.height
    n_unnamed = collectives["operation"].null_count()
    if n_unnamed:
        yield Check(
            check="collectives of unknown operation",
            severity=INFO,
            count=n_unnamed,
            detail=f"{n_unnamed} of {total}: neither metadata nor a host call says what they do",
        )
    n_plain = collectives.filter(~pl.col("source").is_in(["metadata", "gloo"])).height
    if n_plain:
        yield Check(
            check="collectives without metadata",
            severity=INFO,
            count=n_plain,
            detail=f"{n_plain} of {total} lack group, bytes or dtype: a newer torch records them",
        )
    if (
        collectives["sequence"].null_count() == total
        and collectives["comms_id"].null_count() == total
    ):
        yield Check(
            check="no sequence numbers",
            severity=INFO,
            count=total,
            detail="collectives are matched over ranks by their order",
        )
