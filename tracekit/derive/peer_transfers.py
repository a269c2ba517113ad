"""How long the transfers of one place take against those of its peers: same traffic, other ranks.

A place is a group, or a link: what two ranks send each other; where hosts are known and differ, two
hosts. Peers are groups of one dimension whose members lie equally far apart, or links of one
dimension whose ends do. Compared are the medians of transfers of one operation and size. What is
usual among peers is their median, of two places the faster one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.cached import remembered
from tracekit.derive.groups import groups
from tracekit.derive.kernel_kinds import POINT_TO_POINT
from tracekit.derive.traffic import comparable

if TYPE_CHECKING:
    from tracekit.store import Run

_SAME = ("alike", "operation", "size_bytes")
_PLACED = ("instance", "place", "members", "alike", "operation", "size_bytes", "transfer_ns")


@remembered
def of_groups(run: Run) -> pl.DataFrame:
    """Collectives with a known transfer, and their group.

    Returns:
        `instance`, `place` (the group), `members` (ranks), `alike` (equal for peers), `operation`,
        `size_bytes`, `transfer_ns`; by start.
    """
    is_message = pl.col("operation").is_in(list(POINT_TO_POINT))
    alike = pl.format("{} {}", "dimension", "layout")
    known = groups(run).drop_nulls("layout").select("group", "members", alike=alike)
    return (
        _sized(run)
        .filter(~is_message)
        .join(known, on="group", validate="m:1", maintain_order="left")
        .rename({"group": "place"})
        .select(_PLACED)
    )


@remembered
def of_links(run: Run) -> pl.DataFrame:
    """Messages with a known transfer, and their link.

    Returns:
        As `of_groups`; `place` reads "ranks 0 – 4", or "hosts a – b", and `operation` is "message".
    """
    rank, peer = pl.col("rank"), pl.col("peer")
    host, peer_host = pl.col("host"), pl.col("peer_host")
    is_across = (host != peer_host).fill_null(value=False)
    low, high = pl.min_horizontal(host, peer_host), pl.max_horizontal(host, peer_host)
    place = (
        pl.when(is_across)
        .then(pl.format("hosts {} – {}", low, high))
        .otherwise(pl.format("ranks {} – {}", rank, peer))
    )
    apart = pl.when(is_across).then(pl.lit("across")).otherwise((peer - rank).cast(pl.String))
    alike = pl.format("{} {}", pl.col("dimension").fill_null(""), apart)
    placed = _with_ends(run).with_columns(place=place, alike=alike, operation=pl.lit("message"))
    ranks = (
        placed.select("place", members=pl.concat_list(rank, peer))
        .explode("members")
        .group_by("place")
        .agg(pl.col("members").unique().sort())
    )
    return placed.join(ranks, on="place", validate="m:1", maintain_order="left").select(_PLACED)


def _with_ends(run: Run) -> pl.DataFrame:
    """Messages with the lower `rank` of both ends and its `peer`, their hosts, the dimension."""
    ends = ("sender", "receiver")
    hosts = pl.DataFrame(
        [(capture.rank, capture.host) for capture in run.manifest.captures],
        schema={"rank": pl.Int64, "host": pl.String},
        orient="row",
    )
    peers = hosts.rename({"rank": "peer", "host": "peer_host"})
    dimensions = groups(run).select("group", "dimension")
    return (
        _sized(run)
        .drop_nulls(ends)
        .with_columns(rank=pl.min_horizontal(ends), peer=pl.max_horizontal(ends))
        .join(hosts, on="rank", how="left", validate="m:1", maintain_order="left")
        .join(peers, on="peer", how="left", validate="m:1", maintain_order="left")
        .join(dimensions, on="group", how="left", validate="m:1", maintain_order="left")
    )


def against_peers(placed: pl.DataFrame) -> pl.DataFrame:
    """Transfers of each place, operation and size that peers have too.

    Args:
        placed: rows of `of_groups` or `of_links`.

    Returns:
        `place`, `members`, `alike`, `operation`, `size_bytes`, `n_calls`, `p50_ns`, `usual_ns` (of
        its peers, itself among them), `n_peers` (other places); by place, operation and size.
    """
    return (
        placed.group_by("place", *_SAME)
        .agg(pl.col("members").first(), n_calls=pl.len(), p50_ns=pl.col("transfer_ns").median())
        .with_columns(
            usual_ns=pl.col("p50_ns").quantile(0.5, "lower").over(_SAME),
            n_peers=pl.len().over(_SAME) - 1,
        )
        .filter(pl.col("n_peers") > 0)
        .select(
            "place",
            "members",
            "alike",
            "operation",
            "size_bytes",
            "n_calls",
            "p50_ns",
            "usual_ns",
            "n_peers",
        )
        .sort("place", "operation", "size_bytes")
    )


def _sized(run: Run) -> pl.DataFrame:
    return comparable(run).filter(pl.col("size_bytes") > 0).collect()
