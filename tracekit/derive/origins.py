"""Who kept a pipeline waiting: the origin of each wait for a message, not the last link.

Both sides of a message leave it together, so that the earlier one waits by as much as it takes
longer. A wait counts while the device computes nothing. The other side is its cause, except for
what that one waited for others since it had last exchanged a message with the first: so much of the
wait passes on to whom it waited for, link by link. (As delays are traced to their root cause in
Scalasca: doi.org/10.1016/j.parco.2013.05.005.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.activity import COMPUTE, activity, device_of_call
from tracekit.derive.cached import cached
from tracekit.derive.instances import instances
from tracekit.derive.intervals import gaps
from tracekit.derive.kernel_kinds import POINT_TO_POINT
from tracekit.derive.steps import begun_inside, spans
from tracekit.schema.table import DUR, I64, Column, Table

if TYPE_CHECKING:
    from tracekit.store import Run

ORIGINS = Table(
    "wait_origins",
    "stretch in which a rank waited for a message, with who kept it waiting",
    (
        Column("rank", I64, "", "who waited"),
        Column("step", I64, "", "step in which it began"),
        Column("origin", I64, "", "who kept it waiting, through all links"),
        DUR,
    ),
)
MAX_LINKS = 256
"""A wait passes on at most so often: through all micro-batches of a step."""
LEAST_SHARE = 0.001
"""What is left of all waits when following them ends."""
AT_ONCE_NS = 5_000
"""Compute may seem to start so long before the message that it waited for has ended."""


def wait_origins(run: Run) -> pl.DataFrame:
    """Waits for messages by origin (`ORIGINS`), by rank, step and origin."""
    return cached(run, ORIGINS, lambda: _origins(run)).collect()


def _origins(run: Run) -> pl.DataFrame:
    messages = _messages(run)
    held = [
        _held(run, int(rank), own)
        for (rank,), own in messages.partition_by("rank", as_dict=True, maintain_order=True).items()
    ]
    if not held:
        return ORIGINS.empty()
    pieces = pl.concat(held).with_row_index("piece")
    totals = _followed(pieces, _parents(pieces))
    return (
        totals.group_by("rank", "step", "origin")
        .agg(dur_ns=pl.col("wait_ns").sum().round().cast(pl.Int64))
        .filter(pl.col("dur_ns") > 0)
        .sort("rank", "step", "origin")
        .select(list(ORIGINS.schema))
    )


def _parents(pieces: pl.DataFrame) -> pl.DataFrame:
    """Of each wait, the share that passes on to each wait of its other side: `piece`, `parent`.

    Those are what the other side waited since both last exchanged a message, until it came.
    """
    theirs = pieces.select(
        other="rank", parent="piece", next_other="other", from_ns="start_ns", to_ns="end_ns"
    )
    overlap_ns = pl.min_horizontal("to_ns", "came_ns") - pl.max_horizontal("from_ns", "since_ns")
    total_ns = pl.col("overlap_ns").sum().over("piece")
    dur_ns = pl.col("end_ns") - pl.col("start_ns")
    return (
        pieces.join(theirs, on="other")
        .with_columns(overlap_ns=overlap_ns)
        # A wait for the first rank itself is where both were together, and no cause.
        .filter((pl.col("overlap_ns") > 0) & (pl.col("next_other") != pl.col("rank")))
        .with_columns(share=pl.col("overlap_ns") / pl.max_horizontal(total_ns, dur_ns))
        .select("piece", "parent", "share")
    )


def _followed(pieces: pl.DataFrame, parents: pl.DataFrame) -> pl.DataFrame:
    """Each wait shared among its origins: `rank`, `step`, `origin`, `wait_ns`."""
    passed = parents.group_by("piece").agg(passed_share=pl.col("share").sum())
    own = pieces.join(passed, on="piece", how="left", validate="1:1").select(
        "piece",
        origin="other",
        kept_share=1 - pl.col("passed_share").fill_null(0.0),
    )
    here = pieces.select("rank", "step", "piece", wait_ns=pl.col("end_ns") - pl.col("start_ns"))
    least_ns = LEAST_SHARE * float(here["wait_ns"].sum())
    left = here.with_columns(pl.col("wait_ns").cast(pl.Float64))
    done = []
    for _ in range(MAX_LINKS):
        at = left.join(own, on="piece", validate="m:1")
        done.append(
            at.select("rank", "step", "origin", wait_ns=pl.col("wait_ns") * pl.col("kept_share"))
        )
        left = (
            left.join(parents, on="piece")
            .group_by("rank", "step", piece="parent")
            .agg(wait_ns=(pl.col("wait_ns") * pl.col("share")).sum())
        )
        if float(left["wait_ns"].sum()) <= least_ns:
            break
    return pl.concat(done)


def _messages(run: Run) -> pl.DataFrame:
    """Messages of all ranks: `rank`, `device`, `other`, start, end, and how long it waited.

    `waited_ns` is until when; `came_ns` is when the other side came by its own clock, `since_ns`
    when it had left its last message with this rank.
    """
    here, end_ns = "instance", pl.col("start_ns") + pl.col("dur_ns")
    wait_ns = pl.col("dur_ns") - pl.col("dur_ns").min().over(here)
    own = (
        instances(run)
        .filter(
            pl.col("operation").is_in(list(POINT_TO_POINT))
            & pl.col("instance").is_not_null()
            & (pl.col("n_seen") == 2)
        )
        .select(
            "rank",
            "start_ns",
            device=device_of_call(run),
            other=pl.col("rank").sum().over(here) - pl.col("rank"),
            waited_ns=pl.col("start_ns") + wait_ns,
            end_ns=end_ns,
            instance="instance",
        )
        .sort("rank", "start_ns")
        .collect()
    )
    ended = own.select("rank", "other", since_ns="end_ns").sort("since_ns")
    theirs = (
        own.sort("start_ns")
        .join_asof(
            ended,
            left_on="start_ns",
            right_on="since_ns",
            by=["rank", "other"],
            strategy="backward",
            check_sortedness=False,
        )
        .select("instance", pl.col("since_ns").fill_null(0), other="rank", came_ns="start_ns")
    )
    return own.join(theirs, on=["instance", "other"], validate="1:1").sort("rank", "start_ns")


def _held(run: Run, rank: int, own: pl.DataFrame) -> pl.DataFrame:
    """Where a rank waits for a message and computes nothing, gap by gap of its compute.

    The message that ends last before compute goes on is the one that it waited for.
    """
    compute = activity(run, rank).filter(pl.col("class") == COMPUTE)
    bare = gaps(compute.select("device", "start_ns", "end_ns"), ["device"]).collect()
    held = (
        bare.rename({"start_ns": "opens_ns", "end_ns": "closes_ns"})
        .with_columns(until_ns=pl.col("closes_ns") + AT_ONCE_NS)
        .sort("until_ns")
        .join_asof(
            own.drop("rank").sort("end_ns"),
            left_on="until_ns",
            right_on="end_ns",
            by="device",
            strategy="backward",
            check_sortedness=False,
        )
        .filter(pl.col("end_ns") > pl.col("opens_ns"))
        .with_columns(
            start_ns=pl.max_horizontal("start_ns", "opens_ns"),
            end_ns=pl.min_horizontal("waited_ns", "closes_ns"),
        )
        .filter(pl.col("end_ns") > pl.col("start_ns"))
    )
    return (
        begun_inside(held.drop("opens_ns", "closes_ns").lazy(), spans(run, rank))
        .select(
            pl.lit(rank, dtype=pl.Int64).alias("rank"),
            "step",
            "other",
            "start_ns",
            "end_ns",
            "came_ns",
            "since_ns",
        )
        .collect()
    )
