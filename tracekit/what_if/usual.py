"""What the like of each piece of work takes: the job without stragglers, from traces of ranks.

Compute and copies of a kind take on each rank and step what they take on the mean one; the host's
time likewise, by rank; the transfer of a collective is the median of those of its operation and
size. Kernels keep their place in the step: each is scaled by the same factor.
"""

from __future__ import annotations

import polars as pl

from tracekit.what_if.replay import HOST

_PLACE = ("rank", "device")


def with_usual(work: pl.DataFrame, windows: pl.DataFrame, places: pl.DataFrame) -> pl.DataFrame:
    """Add `dp`, `stage`, `type`, `step` and `usual_ns` to the work of a job.

    Args:
        work: rank, device, class, kind, operation, bytes_in, group_size, instance, start_ns,
            end_ns, own_ns.
        windows: all windows of steps: rank, device, step, start_ns, dur_ns, is_averaged.
        places: rank, pipeline, stage.

    Returns:
        The rows of `work` in their order. `step` is null outside of steps; communication that is
        part of no known collective (`instance` is null) is as usual as it is.
    """
    placed = _placed(_in_steps(work, windows), places)
    averaged = windows.filter("is_averaged").select("rank", "step", is_averaged=True).unique()
    by_kind = _kind_factor(placed.filter(pl.col("class").is_in(["compute", "copy"])), averaged)
    by_rank = _host_factor(placed.filter(pl.col("class") == HOST))
    kind = ["rank", "step", "type"]
    transfer_ns = pl.col("own_ns").median().over("operation", "bytes_in", "group_size")
    return (
        # "step" is null outside of steps: those rows have no factor
        placed.join(by_kind, on=kind, how="left", maintain_order="left", validate="m:1")
        .join(by_rank, on="rank", how="left", maintain_order="left", validate="m:1")
        .with_columns(
            usual_ns=pl.when(pl.col("class") == "communication")
            .then(pl.when(pl.col("instance").is_null()).then("own_ns").otherwise(transfer_ns))
            .when(pl.col("class") == HOST)
            .then(pl.col("own_ns") * pl.col("host_factor").fill_null(1.0))
            .otherwise(pl.col("own_ns") * pl.col("factor").fill_null(1.0))
        )
        .drop("factor", "host_factor")
    )


def _placed(work: pl.DataFrame, places: pl.DataFrame) -> pl.DataFrame:
    """Add `dp`, `stage` and `type`; rows keep their order."""
    return work.join(
        places.select("rank", "stage", dp=pl.col("pipeline").rank("dense").cast(pl.Int64) - 1),
        on="rank",
        how="left",
        maintain_order="left",
        validate="m:1",
    ).with_columns(
        type=pl.when(pl.col("class") == "communication")
        .then(pl.coalesce("operation", "kind"))
        .otherwise(pl.coalesce("kind", "class"))
    )


def _in_steps(work: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Add the `step` in which each event begins, null outside; rows keep their order."""
    spans = windows.select(
        *_PLACE, "step", opens_ns="start_ns", closes_ns=pl.col("start_ns") + pl.col("dur_ns")
    ).sort("opens_ns")
    return (
        work.with_row_index("row")
        .sort("start_ns")
        .join_asof(
            spans,
            left_on="start_ns",
            right_on="opens_ns",
            by=list(_PLACE),
            strategy="backward",
            check_sortedness=False,  # it cannot see that both are sorted
        )
        .with_columns(step=pl.when(pl.col("start_ns") < pl.col("closes_ns")).then("step"))
        .drop("opens_ns", "closes_ns")
        .sort("row")
        .drop("row")
    )


def _kind_factor(rows: pl.DataFrame, averaged: pl.DataFrame) -> pl.DataFrame:
    """`factor` by rank, step and type: mean total of the type over ranks and averaged steps / own.

    Steps that are not averaged may be cut off: they say nothing of the mean, and work of theirs
    gets the factor of its rank.
    """
    totals = (
        rows.drop_nulls("step")
        .group_by("rank", "step", "type")
        .agg(pl.col("own_ns").sum())
        .join(averaged, on=["rank", "step"], how="left", validate="m:1")
        .with_columns(pl.when("is_averaged").then("own_ns").alias("whole_ns"))
    )
    mean_ns = pl.col("whole_ns").mean().over("type")
    of_rank_ns = pl.col("whole_ns").mean().over("rank", "type")
    own_ns = pl.coalesce("whole_ns", of_rank_ns)
    return totals.select("rank", "step", "type", factor=pl.when(own_ns > 0).then(mean_ns / own_ns))


def _host_factor(rows: pl.DataFrame) -> pl.DataFrame:
    """`host_factor` by rank: the mean of the host's whole time over ranks / that of the rank.

    Pieces that begin together overlap; the longest holds the others.
    """
    whole = (
        rows.group_by("rank", "start_ns")
        .agg(pl.col("own_ns").max())
        .group_by("rank")
        .agg(pl.col("own_ns").sum())
    )
    factor = pl.when(pl.col("own_ns") > 0).then(pl.col("own_ns").mean() / pl.col("own_ns"))
    return whole.select("rank", host_factor=factor)
