"""Bus bandwidth of large transfers, and what nccl-tests measured among as many ranks and nodes.

A measurement is compared with a group of the same number of ranks on the same number of nodes:
with other ranks a node other adapters carry it. Its size is the nearest one, at most twice or half
as large; of in place and out of place the lower bandwidth counts.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.averages import averaged, averages
from tracekit.derive.cached import remembered
from tracekit.derive.call_exposure import call_exposure
from tracekit.derive.groups import groups
from tracekit.derive.traffic import bus_factor, traffic

if TYPE_CHECKING:
    from tracekit.store import Run

MIN_BYTES = 1_000_000
"""Smaller transfers cost their start: their bandwidth says nothing of the fabric."""
MAX_SIZE_RATIO = 2.0
_KEY = ("group", "operation", "size_bytes")


@remembered
def transfers(run: Run) -> pl.DataFrame:
    """Large transfers of groups that are known, by group, operation and size.

    Returns:
        `group`, `operation`, `size_bytes`, `members`, `n_members`, `n_nodes` and `n_local` (ranks
        on the node with most; null where a member's host is not known), `n_calls`, `p50_ns`,
        `busbw_gb_s` of that.
    """
    rows = (
        traffic(run)
        .filter(~pl.col("is_bound") & (pl.col("transfer_ns") > 0))
        .filter(pl.col("size_bytes") >= MIN_BYTES)
        .filter(pl.col("busbw_gb_s").is_not_null() & (pl.col("n_members") > 1))
        .group_by(*_KEY, "n_members")
        .agg(n_calls=pl.len(), p50_ns=pl.col("transfer_ns").median())
        .with_columns(busbw_gb_s=pl.col("size_bytes") * bus_factor() / pl.col("p50_ns"))
        .collect()
    )
    return (
        rows.join(places(run), on="group", validate="m:1")
        .select(
            *_KEY,
            "members",
            "n_members",
            "n_nodes",
            "n_local",
            "n_calls",
            "p50_ns",
            "busbw_gb_s",
        )
        .sort(_KEY)
    )


def places(run: Run) -> pl.DataFrame:
    """Where each group lies: `group`, `members`, `n_nodes`, `n_local` (ranks on the fullest node).

    Null where a member's host is not known.
    """
    hosts = pl.DataFrame(
        [(capture.rank, capture.host) for capture in run.manifest.captures],
        schema={"members": pl.Int64, "host": pl.String},
        orient="row",
    )
    listed = groups(run).select("group", "members").drop_nulls()
    each = listed.explode("members").join(hosts, on="members", how="left", validate="m:1")
    are_known = pl.col("host").is_not_null().all()
    places = each.group_by("group").agg(
        n_nodes=pl.when(are_known).then(pl.col("host").n_unique()).cast(pl.Int64),
        n_local=pl.when(are_known)
        .then(pl.col("host").value_counts(name="n").struct["n"].max())
        .cast(pl.Int64),
    )
    return listed.join(places, on="group", validate="1:1")


@remembered
def baselines(run: Run) -> pl.DataFrame:
    """What nccl-tests measured: the lower one of in place and out of place.

    Returns:
        `operation`, `n_ranks`, `n_nodes`, `measured_bytes`, `reference_gb_s`, `gpu_model`; without
        what the output leaves open and what came out wrong. By the first four.
    """
    return (
        run.scan_all("bandwidth_baselines")
        .drop_nulls(["operation", "n_ranks", "n_nodes", "busbw_gb_per_s"])
        .filter((pl.col("busbw_gb_per_s") > 0) & (pl.col("n_wrong").fill_null(0) == 0))
        .group_by("operation", "n_ranks", "n_nodes", measured_bytes="size_bytes")
        .agg(
            reference_gb_s=pl.col("busbw_gb_per_s").min(),
            gpu_model=pl.col("gpu_model").drop_nulls().first(),
        )
        .sort("operation", "n_ranks", "n_nodes", "measured_bytes")
        .collect()
    )


@remembered
def against_baselines(run: Run) -> pl.DataFrame:
    """Large transfers that nccl-tests measured likewise (`transfers`), by group.

    Returns:
        The columns of `transfers`, `measured_bytes`, `reference_gb_s` and `usual_ns`, what the
        transfer takes at that bandwidth.
    """
    distance = (pl.col("size_bytes") / pl.col("measured_bytes")).log().abs()
    return (
        transfers(run)
        .join(
            baselines(run).drop("gpu_model"),
            left_on=["operation", "n_members", "n_nodes"],
            right_on=["operation", "n_ranks", "n_nodes"],
        )
        .with_columns(distance=distance)
        .filter(pl.col("distance") <= math.log(MAX_SIZE_RATIO))
        .sort(*_KEY, "distance", "measured_bytes")
        .unique(_KEY, keep="first", maintain_order=True)
        .with_columns(usual_ns=pl.col("p50_ns") * pl.col("busbw_gb_s") / pl.col("reference_gb_s"))
        .drop("distance")
    )


@remembered
def shares_of_tests(run: Run) -> pl.DataFrame:
    """How much of the bandwidth of nccl-tests each group gets that they measured likewise.

    Returns:
        `group`, `members`, `n_nodes`, `n_calls`, `share` (above 1 where it gets more), and of the
        mean step of a member what its transfers take longer: `extra_ns` that nothing hides, and
        `whole_ns`. The most extra time first.
    """
    rows = against_baselines(run)
    n = pl.col("n_calls")
    compared = rows.group_by("group").agg(
        pl.col("members", "n_nodes").first(),
        pl.col("n_calls").sum(),
        share=(n * pl.col("usual_ns")).sum() / (n * pl.col("p50_ns")).sum(),
    )
    key = ["group", "operation"]
    n_steps = max(1, len(averages(run).steps))
    exposed = (
        averaged(run, call_exposure)
        .join(rows.select(key).unique(), on=key, how="semi")
        .group_by("group", "rank")
        .agg(pl.col("exposed_transfer_ns", "transfer_ns").sum() / n_steps)
        .group_by("group")
        .agg(pl.col("exposed_transfer_ns", "transfer_ns").mean())
    )
    longer = (1 - pl.col("share")).clip(0)
    return (
        compared.join(exposed, on="group", how="left", validate="1:1")
        .with_columns(pl.col("exposed_transfer_ns", "transfer_ns").fill_null(0.0))
        .with_columns(
            extra_ns=pl.col("exposed_transfer_ns") * longer,
            whole_ns=pl.col("transfer_ns") * longer,
        )
        .drop("exposed_transfer_ns", "transfer_ns")
        .sort("extra_ns", "group", descending=[True, False])
    )
