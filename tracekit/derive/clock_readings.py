"""Clocks by what a hook measured between hosts: for hosts that share too few collectives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from tracekit.store import Capture, Run

READINGS = "readings"
COMPONENT = -1
"""Number of the component of all clocks that were read against the same host."""


def with_readings(run: Run, found: pl.DataFrame) -> pl.DataFrame:
    """The clocks (`CLOCKS`) with those of hosts that were read against one reference put together.

    A line through the first reading and the last; unchanged where fewer than two clocks were read.
    """
    lines = [
        line
        for capture in run.manifest.captures
        if (line := _line(capture, run.manifest.epoch_ns)) is not None
    ]
    references = [line.pop("reference") for line in lines]
    usual = max(set(references), key=lambda name: (references.count(name), name), default=None)
    rows = [line for line, name in zip(lines, references, strict=True) if name == usual]
    if not rows:
        return found
    read = pl.DataFrame(rows).join(found.select("rank", "clock"), on="rank", validate="1:1")
    if read["clock"].n_unique() < 2:
        return found
    lasting = found.join(read.select("rank"), on="rank", how="anti")
    told = read.with_columns(
        component=pl.lit(COMPONENT, dtype=pl.Int64),
        is_usable=pl.lit(value=True),
        source=pl.lit(READINGS),
    ).select(pl.col(name).cast(kind) for name, kind in found.schema.items())
    return pl.concat([lasting, told]).sort("rank")


def _line(capture: Capture, epoch_ns: int) -> dict[str, object] | None:
    """Offset and drift of a rank's host against its reference; None where it was not read."""
    if not capture.clocks:
        return None
    first, last = capture.clocks[0], capture.clocks[-1]
    apart_ns = last.at_ns - first.at_ns
    moved_ns = first.offset_ns - last.offset_ns  # what is added falls as the clock gets ahead
    return {
        "rank": capture.rank,
        "reference": first.reference or "",
        "origin_ns": first.at_ns - epoch_ns,
        "offset_ns": float(-first.offset_ns),
        "drift": moved_ns / apart_ns if apart_ns > 0 else 0.0,
        "error_ns": float(max(first.error_ns, last.error_ns)),
        "n_ends": 0,
    }
