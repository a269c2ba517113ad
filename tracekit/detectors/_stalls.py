"""What detectors of host stalls share: their tables of evidence, and how sure they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.activity import has_device_events
from tracekit.derive.profiler_cost import costly_options
from tracekit.findings import Column, Confidence, Evidence, Level
from tracekit.units import Unit

if TYPE_CHECKING:
    from tracekit.store import Run

N_SHOWN = 16
NOTHING = "no step holds device activity or host operators"
ASSUMES = (
    "the host launches in time on all ranks, and nothing else holds the devices up; low end: only "
    "stalls longer than the same rank's waiting for others"
)


def at_fault(ranks: pl.DataFrame, min_share: float) -> tuple[int, ...]:
    """Ranks stalled for at least a share of their step (rows of `by_rank`), sorted."""
    return tuple(sorted(ranks.filter(pl.col("share") >= min_share)["rank"].unique().to_list()))


def confidence(run: Run) -> Confidence:
    """How sure figures about the host are: the profiler slows it, with some options much."""
    options = costly_options(run)
    if options:
        return Confidence(
            Level.LOW,
            f"recorded with {', '.join(options)}, which slows the host: an upper bound. Record "
            "again without them",
        )
    if not has_device_events(run):
        why = "no device events: the training thread stands for the device"
        return Confidence(Level.MEDIUM, why)
    return Confidence(Level.MEDIUM, "the profiler itself slows the host a little")


def ranks_table(what: str, ranks: pl.DataFrame) -> Evidence:
    """Stalls by rank in the mean step (rows of `by_rank`), the longest first."""
    rows = ranks.select("rank", "device", "step_ns", "stall_ns", "share", "n_stalls")
    return Evidence(
        title=f"{what} by rank, mean step",
        columns=(
            Column("rank"),
            Column("device"),
            Column("step", Unit.NS),
            Column("stalled", Unit.NS),
            Column("share of the step", Unit.SHARE),
            Column("stalls", Unit.COUNT),
        ),
        rows=tuple(rows.head(N_SHOWN).iter_rows()),
    )


def calls_table(what: str, calls: pl.DataFrame) -> Evidence:
    """Stalls by the host call in which they fell (rows of `by_call`)."""
    rows = calls.select(pl.col("detail").str.slice(0, 120), "n_stalls", "stall_ns", "longest_ns")
    return Evidence(
        title=f"{what} by host call, mean rank and step",
        columns=(
            Column("host call"),
            Column("stalls", Unit.COUNT),
            Column("stalled", Unit.NS),
            Column("longest", Unit.NS),
        ),
        rows=tuple(rows.head(N_SHOWN).iter_rows()),
    )
