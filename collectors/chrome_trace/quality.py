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
    events: pl.DataFrame, calls: pl.DataFrame, window: tuple[int, int] | None, n_broken: int
) -> Iterator[Check]:
    """Whether device events and launch calls fit together.

    Args:
        events: device events with start_ns, dur_ns, name, device, stream and correlation.
        calls: runtime calls with start_ns, correlation and is_launch.
        window: start and end of the capture, where the file says them.
        n_broken: durations that had to be clipped.
    """
    if n_broken:
        yield Check(
            check="broken durations",
            severity=WARNING,
            count=n_broken,
            detail="negative, past the capture window, or swallowing later events: clipped",
        )
    if events.is_empty():
        if calls.height:
            yield Check(
                check="no device events",
                severity=WARNING,
                count=calls.height,
                detail="runtime calls but no kernels: another tool may hold the GPU's counters "
                "(Nsight, DCGM); see 'dcgmi profile --pause'",
            )
        return
    is_coarse = _is_in_whole_us(events)
    slack_ns = ROUNDING_NS if is_coarse else 0
    yield from _link_checks(events, calls, slack_ns)
    yield from _event_checks(events, window, slack_ns)
    if is_coarse:
        yield Check(
            check="whole microseconds",
            severity=INFO,
            count=events.height,
            detail="times have no finer digits: each figure is ±1 µs an event",
        )


def _link_checks(events: pl.DataFrame, calls: pl.DataFrame, slack_ns: int) -> Iterator[Check]:
    """Device events without a launch, launches without a device event, effects before causes."""
    named = calls.drop_nulls("correlation")
    first = named.group_by("correlation").agg(pl.col("start_ns").min())
    known = events.select("correlation", "start_ns")  # a join copies all columns it is given
    early_ns = pl.col("start_ns_call") - pl.col("start_ns")
    n_linked, n_early, most_ns = (
        known.lazy()
        .join(first.lazy(), on="correlation", how="inner", suffix="_call")
        .select(n=pl.len(), n_early=(early_ns > slack_ns).sum(), most_ns=early_ns.max())
        .collect()
        .row(0)
    )
    share = n_linked / events.height
    if share < MIN_LINKED_SHARE:
        yield Check(
            check="device events without a launch",
            severity=INFO,
            count=events.height - n_linked,
            detail=f"{100 * (1 - share):.1f} % of the device events were launched before the "
            "capture or by calls it does not hold; they count in the step in which they start",
        )
    launches = named.filter("is_launch").select("correlation")
    lost = launches.join(known, on="correlation", how="anti")
    if lost.height > (1 - MIN_LINKED_SHARE) * launches.height:
        yield Check(
            check="launches without a device event",
            severity=INFO,
            count=lost.height,
            detail=f"{lost.height:,} of {launches.height:,} launch calls started nothing that was "
            "recorded: device events were lost, or lie behind the end of the capture",
        )
    if n_early:
        yield Check(
            check="started before its launch",
            severity=WARNING,
            count=n_early,
            detail=f"{n_early:,} of {n_linked:,} device events, by up to {most_ns / 1000:,.1f} "
            "µs: device and host clocks of this capture disagree",
        )


def _event_checks(
    events: pl.DataFrame, window: tuple[int, int] | None, slack_ns: int
) -> Iterator[Check]:
    """Device events of no length, outside the capture, over each other, or without their name."""
    end = pl.col("start_ns") + pl.col("dur_ns")
    next_start = pl.col("start_ns").shift(-1).over("device", "stream")
    # Only what is asked for is sorted: this is where a conversion takes most memory.
    ordered = events.select("start_ns", "dur_ns", "device", "stream").sort("start_ns")
    outside = pl.lit(value=False)
    if window is not None:
        outside = (pl.col("start_ns") < window[0] - slack_ns) | (end > window[1] + slack_ns)
    for check, where, detail in (
        ("zero durations", pl.col("dur_ns") == 0, "kept, they take no time"),
        (
            "overlap on one stream",
            next_start < end - slack_ns,
            "programmatic dependent launch, graphs or ROCm; counted once by union",
        ),
        ("outside the capture window", outside, "the profiler's own span does not hold them; kept"),
    ):
        count = int(ordered.select(where.sum()).item() or 0)
        if count:
            yield Check(check=check, severity=INFO, count=count, detail=detail)
    n_unnamed = events.filter(pl.col("name") == "unknown").height
    if n_unnamed:
        yield Check(
            check="names not recorded",
            severity=INFO,
            count=n_unnamed,
            detail="the profiler writes 'unknown' for a name with other than ASCII characters",
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
    n_cut = collectives.filter(pl.col("group").is_not_null() & pl.col("members").is_null()).height
    if n_cut:
        yield Check(
            check="groups without their members",
            severity=INFO,
            count=n_cut,
            detail=f"{n_cut} of {total} name a group whose list of ranks is cut or missing",
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
