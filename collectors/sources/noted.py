"""What a hook notes beside the trace of a rank: facts, samples, telemetry, clocks, what it cost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import polars as pl

from tracekit import facts
from tracekit.collectors.clocks.pairs import steps_between
from tracekit.collectors.sources.telemetry_rows import telemetry_rows
from tracekit.errors import InputError
from tracekit.schema import SAMPLES, TELEMETRY
from tracekit.store import Check, read_json

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

LATEST_NS = 1 << 62
"""In the year 2116: the difference of two such times is an Int64."""
MAX_LENGTH = (1 << 63) - 1
AROUND_NS = 60 * 10**9
"""Telemetry is kept for a minute before and after a window."""


def sample_rows(window: facts.Window | None, epoch_ns: int) -> pl.DataFrame:
    """Rows of `samples`; numbers that no table holds, which no hook writes, are left out."""
    rows = []
    calls: dict[int, int] = {}
    for sample in window.samples if window else ():
        batch = calls.get(sample.step, 0)
        calls[sample.step] = batch + 1
        rows += [
            (sample.at_ns - epoch_ns, sample.step, batch, length, sample.modality)
            for length in sample.lengths
            if 0 <= sample.at_ns <= LATEST_NS and 0 <= length <= MAX_LENGTH
        ]
    return pl.DataFrame(rows, schema=SAMPLES.schema, orient="row")


def telemetry_rows_around(
    attempt: Path, who: facts.Facts | None, told: facts.Window | None, epoch_ns: int
) -> pl.DataFrame:
    """What the sampler of the rank's host saw around the window: of the rank's devices.

    The host's own metrics stand with its first rank.
    """
    if who is None or told is None:
        return TELEMETRY.empty()
    with_host = _is_first_of_host(attempt, who)
    uuids = [device.uuid for device in who.devices if device.uuid is not None]
    current = attempt / "telemetry" / f"host={who.host}.jsonl"
    rows = [
        telemetry_rows(path, epoch_ns, uuids, with_host=with_host)
        for path in (current.with_suffix(".old.jsonl"), current)
        if path.exists()
    ]
    start_ns = told.started_ns - epoch_ns - AROUND_NS
    end_ns = told.ended_ns - epoch_ns + AROUND_NS
    around = pl.concat([TELEMETRY.empty(), *rows])
    return around.filter(pl.col("end_ns").is_between(start_ns, end_ns))


def _is_first_of_host(attempt: Path, who: facts.Facts) -> bool:
    """Whether no rank before this one runs on its host: without a launcher each is its first."""
    if who.local_rank != 0 or who.launcher is not None:
        return who.local_rank == 0
    before = (facts_of(attempt, rank) for rank in range(who.rank))
    return all(other is None or other.host != who.host for other in before)


def clock_readings(attempt: Path, who: facts.Facts | None) -> tuple[facts.ClockReading, ...]:
    """What the host's clock was measured to be; none where all ranks share one."""
    if who is None:
        return ()
    path = attempt / "clocks" / f"host={who.host}.jsonl"
    found = []
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            reading = msgspec.json.decode(line, type=_Reading)
        except msgspec.MsgspecError:  # a kill cut it
            continue
        if reading.offset is not None:
            found.append(replace(reading.offset, reference=reading.reference))
    return tuple(found)


class _Reading(msgspec.Struct):
    """A line of `clocks/host=….jsonl`."""

    reference: str | None = None
    offset: facts.ClockReading | None = None


def checks(window: facts.Window | None) -> Iterable[Check]:
    """What the hook noted: a window that is short, and what recording cost."""
    if window is None:
        detail = "the job was killed while it was written; its end may be missing"
        yield Check(check="window not closed", severity="warning", count=1, detail=detail)
        return
    if len(window.clocks) == 2:
        jump_ns = steps_between(*window.clocks)
        if jump_ns is not None:
            detail = f"by {jump_ns / 1e6:+,.3f} ms: times before and after do not fit together"
            yield Check(
                check="clock set while recording", severity="warning", count=1, detail=detail
            )
    for note in window.notes:
        yield Check(check="window shorter than asked for", severity="info", count=1, detail=note)
    if not window.is_whole:
        detail = f"the loop ended after {window.n_steps} of its steps"
        yield Check(check="window cut", severity="info", count=1, detail=detail)
    if window.before_ns and window.during_ns:
        before, during = (_median(each) for each in (window.before_ns, window.during_ns))
        share = during / max(before, 1) - 1
        yield Check(
            check="cost of recording",
            severity="info",
            count=window.n_steps,
            detail=f"a step took {during / 1e6:,.1f} ms while it was recorded and "
            f"{before / 1e6:,.1f} ms before ({share:+.0%}); saving took "
            f"{window.save_ns / 1e6:,.0f} ms",
        )


def _median(values: tuple[int, ...]) -> int:
    return sorted(values)[len(values) // 2]


def facts_of(attempt: Path, rank: int) -> facts.Facts | None:
    """The rank's facts; null where it was killed before it knew them."""
    path = attempt / "ranks" / f"rank={rank:06d}.json"
    try:
        return read_json(path, facts.Facts)
    except InputError:
        return None


def window_of(raw: Path, rank: int) -> facts.Window | None:
    """What the rank noted of its window; null where it was killed before it could."""
    path = raw / f"rank={rank:06d}.window.json"
    try:
        return read_json(path, facts.Window)
    except InputError:
        return None
