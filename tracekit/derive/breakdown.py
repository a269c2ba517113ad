"""Where the time of each device goes: the five parts of a step, and of exposed communication.

C, N, M are the unions of compute kernels, communication kernels, copies and memsets. Exposed
compute |C∖N|, overlapped |C∩N|, exposed communication |N∖C|, exposed copy |M∖(C∪N)| and idle add up
to the step, in integer ns (the four-way split of Lumos, arXiv 2504.09307, with copies apart).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.activity import COMPUTE, COPY, activity
from tracekit.derive.cached import cached
from tracekit.derive.intervals import sweep
from tracekit.derive.kernel_kinds import COMMUNICATION
from tracekit.derive.steps import windows
from tracekit.derive.waits import waits_of
from tracekit.schema.table import DEVICE, DUR, FLAG, I64, START, TEXT, Column, Table

if TYPE_CHECKING:
    from tracekit.store import Run

PARTS = (
    "exposed_compute_ns",
    "overlapped_ns",
    "exposed_communication_ns",
    "exposed_copy_ns",
    "idle_ns",
)
SPLITS = ("exposed_waiting_ns", "exposed_transfer_ns", "unsplit_communication_ns")
BREAKDOWN = Table(
    "breakdown",
    "step and device of one rank; a null step is the whole trace, first to last event",
    (
        DEVICE,
        Column("step", I64, "", "number of the step"),
        START,
        DUR,
        *(Column(name, I64, "ns", "part of dur_ns") for name in PARTS),
        *(Column(name, I64, "ns", "part of exposed_communication_ns") for name in SPLITS),
        Column("compute_ns", I64, "ns", "|C|, hidden or not"),
        Column("communication_ns", I64, "ns", "|N|, hidden or not"),
        Column("is_complete", FLAG, "", "whether the window is whole"),
        Column("is_first", FLAG, "", "whether it is the capture's first step"),
        Column("source", TEXT, "", "where the steps come from"),
    ),
)
_CLASSES = (COMPUTE, COPY, "transfer", "waiting", "unsplit")


def breakdown(run: Run, rank: int) -> pl.LazyFrame:
    """Parts of each step and of the whole trace (`BREAKDOWN`), sorted by device and start."""
    return cached(run, BREAKDOWN, lambda: _breakdown(run, rank), rank)


def _breakdown(run: Run, rank: int) -> pl.DataFrame:
    columns = ("device", "class", "start_ns", "end_ns", "stream", "correlation")
    events = activity(run, rank).select(columns).collect()
    if events.is_empty():
        return BREAKDOWN.empty()
    pieces = _pieces(events, waits_of(run, rank).collect())
    steps = windows(run, rank).collect()
    whole = events.group_by("device").agg(
        step=pl.lit(None, dtype=pl.Int64),
        start_ns=pl.col("start_ns").min(),
        end_ns=pl.col("end_ns").max(),
        is_complete=pl.lit(value=False),
        is_first=pl.lit(value=False),
        source=pl.lit("whole trace"),
    )
    spans = (steps.select(whole.columns), whole)
    return pl.concat([_parts(pieces, span) for span in spans]).sort(
        "device", "start_ns", "step", nulls_last=True
    )


def _pieces(events: pl.DataFrame, waited: pl.DataFrame) -> pl.DataFrame:
    """Sweep of one rank's devices, with communication cut into waiting, transfer and unsplit."""
    is_communication = pl.col("class") == COMMUNICATION
    key = ["start_ns", "stream", "correlation"]
    calls = events.filter(is_communication).join(
        waited.select(*key, "wait_ns", "transfer_ns").unique(key, keep="first"),
        on=key,
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )
    known = calls.drop_nulls("wait_ns").with_columns(
        entered_ns=pl.min_horizontal(pl.col("start_ns") + pl.col("wait_ns"), "end_ns")
    )
    is_known = pl.col("transfer_ns").is_not_null()
    after = pl.when(is_known).then(pl.lit("transfer")).otherwise(pl.lit("unsplit"))
    intervals = pl.concat(
        [
            events.filter(~is_communication).select("device", "class", "start_ns", "end_ns"),
            known.select(
                "device", pl.lit("waiting").alias("class"), "start_ns", end_ns="entered_ns"
            ),
            known.select("device", after.alias("class"), start_ns="entered_ns", end_ns="end_ns"),
            calls.filter(pl.col("wait_ns").is_null()).select(
                "device", pl.lit("unsplit").alias("class"), "start_ns", "end_ns"
            ),
        ]
    )
    return sweep(intervals.lazy(), _CLASSES, ["device"]).collect()


def _parts(pieces: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Sum the pieces inside each span; time that no piece covers is idle.

    Spans of one device do not overlap.
    """
    cut = _cut(pieces, spans)
    has = {name: pl.col(f"n_{name}") > 0 for name in _CLASSES}
    computing, copying = has[COMPUTE], has[COPY]
    transferring, waiting = has["transfer"], has["waiting"]
    communicating = transferring | waiting | has["unsplit"]
    dur = pl.col("end_ns") - pl.col("start_ns")
    sums = {
        "exposed_compute_ns": computing & ~communicating,
        "overlapped_ns": computing & communicating,
        "exposed_communication_ns": communicating & ~computing,
        "exposed_copy_ns": copying & ~computing & ~communicating,
        "exposed_transfer_ns": transferring & ~computing,
        "exposed_waiting_ns": waiting & ~transferring & ~computing,
        "unsplit_communication_ns": has["unsplit"] & ~transferring & ~waiting & ~computing,
        "compute_ns": computing,
        "communication_ns": communicating,
    }
    totals = cut.group_by("device", "span_start_ns").agg(
        **{name: dur.filter(where).sum() for name, where in sums.items()}
    )
    busy = pl.sum_horizontal(PARTS[:4])
    return (
        spans.join(
            totals,
            left_on=["device", "start_ns"],
            right_on=["device", "span_start_ns"],
            how="left",
            validate="1:1",
        )
        .with_columns(pl.col(*sums).fill_null(0))
        .with_columns(dur_ns=dur)
        .with_columns(idle_ns=pl.col("dur_ns") - busy)
        .select(list(BREAKDOWN.schema))
    )


def _cut(pieces: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Pieces cut at the edges of the spans, each with the start of its span; others are dropped."""
    tiles = (
        pl.concat([pieces, _openings(pieces, spans).select(pieces.columns)])
        .sort("device", "start_ns", "end_ns")
        .with_columns(
            end_ns=pl.min_horizontal("end_ns", pl.col("start_ns").shift(-1).over("device"))
        )
    )
    opened = spans.select("device", span_start_ns="start_ns", span_end_ns="end_ns")
    return (
        tiles.sort("start_ns")
        .join_asof(
            opened.sort("span_start_ns"),
            left_on="start_ns",
            right_on="span_start_ns",
            by="device",
            strategy="backward",
            check_sortedness=False,
        )
        .filter(pl.col("start_ns") < pl.col("span_end_ns"))
    )


def _openings(pieces: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """The rest of each piece behind an edge of a span that lies inside it."""
    edges = [spans.select("device", at_ns=edge) for edge in ("start_ns", "end_ns")]
    return (
        pl.concat(edges)
        .sort("at_ns")
        .join_asof(
            pieces.sort("start_ns"),
            left_on="at_ns",
            right_on="start_ns",
            by="device",
            strategy="backward",
            check_sortedness=False,
        )
        .filter((pl.col("at_ns") > pl.col("start_ns")) & (pl.col("at_ns") < pl.col("end_ns")))
        .with_columns(start_ns="at_ns")
        .unique(["device", "start_ns"])
    )
