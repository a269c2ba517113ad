"""By what the ranks of a job talk, from NCCL's log: within a node and between nodes.

Between nodes are the connections over a network of a communicator that lies on several nodes; old
versions do not say on how many, where all ranks of a communicator on one host are one node's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.cached import remembered

if TYPE_CHECKING:
    from tracekit.store import Run

BETWEEN, WITHIN = "between nodes", "within a node"
SOCKETS = "TCP sockets"
GPU_DIRECT = "GPUDirect RDMA"
HOST_MEMORY = "RDMA through host memory"
PEER = "peer to peer"
SHARED = "shared memory of the host"
OTHER = "other"
_KEY = ("rank", "host", "pid", "communicator")
_DIRECT_BY_NAME = r"(?i)gpudirect|fastrak"
"""Plugins that reach GPU memory by means of their own, which NCCL does not call GDRDMA."""


@remembered
def links(run: Run) -> pl.DataFrame:
    """Connections of collectives and messages, by place and way.

    Returns:
        `place`, `way`, `network` (null within P2P and SHM), `direction`, `is_message`,
        `n_connections`, `ranks` (that have such a one, in order); by all of them in this order.
    """
    found = run.scan_all("transports").collect()
    made = run.scan_all("communicators").collect().unique(_KEY, keep="last", maintain_order=True)
    n_hosts = made["host"].n_unique()
    is_alone = (pl.col("n_nodes") == 1) | (
        pl.col("n_nodes").is_null() & (pl.lit(n_hosts) == 1) & (pl.col("n_ranks") == len(run.ranks))
    )
    nodes = made.select(*_KEY, is_alone=is_alone.fill_null(value=False))
    is_net = pl.col("transport") == "NET"
    is_between = is_net & ~pl.col("is_alone").fill_null(value=False)
    return (
        found.join(nodes, on=_KEY, how="left", validate="m:1", nulls_equal=True)
        .with_columns(
            place=pl.when(is_between).then(pl.lit(BETWEEN)).otherwise(pl.lit(WITHIN)),
            way=_way(),
        )
        .group_by("place", "way", "network", "direction", "is_message")
        .agg(n_connections=pl.len(), ranks=pl.col("rank").unique().sort())
        .sort("place", "way", "network", "direction", "is_message", nulls_last=True)
    )


def _way() -> pl.Expr:
    transport, network = pl.col("transport"), pl.col("network")
    is_net = transport == "NET"
    return (
        pl.when(is_net & network.str.to_lowercase().str.starts_with("socket"))
        .then(pl.lit(SOCKETS))
        .when(is_net & (pl.col("is_gpu_direct") | network.str.contains(_DIRECT_BY_NAME)))
        .then(pl.lit(GPU_DIRECT))
        .when(is_net)
        .then(pl.lit(HOST_MEMORY))
        .when(transport == "P2P")
        .then(pl.lit(PEER))
        .when(transport == "SHM")
        .then(pl.lit(SHARED))
        .otherwise(pl.lit(OTHER))
    )


@remembered
def variables(run: Run) -> dict[str, str]:
    """NCCL's variables that its log shows set, or that a hook recorded, by name.

    Where ranks differ the most frequent value counts.
    """
    rows = (
        run.scan_all("nccl_messages")
        .filter(kind="environment")
        .group_by("name", "text")
        .agg(n=pl.col("rank").n_unique())
        .sort("n", "name", "text", descending=[True, False, False])
        .unique("name", keep="first", maintain_order=True)
        .sort("name")
        .collect()
    )
    recorded = {
        name: value
        for capture in run.manifest.captures
        if capture.facts is not None
        for name, value in capture.facts.environment.items()
        if name.startswith("NCCL_")
    }
    return recorded | dict(rows.select("name", "text").iter_rows())


@remembered
def said(run: Run) -> pl.DataFrame:
    """What the log says of networks, peers and faults: `kind`, `name`, `text`, `n_ranks`.

    The most widespread first.
    """
    return (
        run.scan_all("nccl_messages")
        .filter(pl.col("kind").is_in(["network", "peer", "warning"]))
        .group_by("kind", "name", "text")
        .agg(n_ranks=pl.col("rank").n_unique().cast(pl.Int64))
        .sort("n_ranks", "kind", "name", "text", descending=[True, False, False, False])
        .collect()
    )
