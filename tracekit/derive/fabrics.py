"""What joins the GPUs of a run: within a node by their model, between nodes by NCCL's log."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.gpu_models import models
from tracekit.derive.links import said
from tracekit.devices import Adapters, Fabric, adapters_of, fabric_of

if TYPE_CHECKING:
    from tracekit.store import Run

N_GPUS_OF_A_NODE = 8
"""Nodes whose GPUs are joined by links without a switch have so many."""
NO_HOSTS = (
    "on which hosts the ranks are is not recorded. Give NCCL's log (NCCL_DEBUG=INFO) beside the "
    "traces, or record with tracekit.collect."
)
NO_ADAPTERS = (
    "which network adapters join the nodes is not known. Measure the nodes with nccl-tests, or log "
    "with NCCL_DEBUG_SUBSYS=INIT,NET, and give the output beside the traces."
)
NO_FABRIC = (
    "by what these GPUs are joined is not known. Measure a node with nccl-tests and give the "
    "output beside the traces."
)
PART_OF_LINKS = (
    "a part of a node's GPUs, without a switch, has a part of their links. Measure as many GPUs "
    "with nccl-tests and give the output beside the traces."
)

_SPEED = re.compile(r"\[(\d{1,3})\] .*\bspeed=(\d{1,8})\b")
"""Number and Mb/s of an adapter, as NCCL_DEBUG_SUBSYS=INIT,NET prints them."""
_INSTANCE = re.compile(r"Running on ([\w.-]{3,30}) platform")
"""As aws-ofi-nccl prints it."""


@dataclass(frozen=True, slots=True)
class Roof:
    """The bus bandwidth that a group can have at most, and what sets it."""

    gb_s: float
    fabric: str


def fabric(run: Run) -> Fabric | None:
    """What joins the GPUs of a node, where all models that are known have the same."""
    measured = run.scan_all("bandwidth_baselines").select("gpu_model").drop_nulls().unique()
    known = {*models(run).values(), *measured.collect()["gpu_model"].to_list()}
    fabrics = {fabric_of(model) for model in known}
    return next(iter(fabrics)) if len(fabrics) == 1 else None


def adapters(run: Run) -> Adapters | None:
    """Network adapters of a node, where the log tells how many there are and how fast."""
    texts = said(run).filter(kind="network").filter(pl.col("name").str.starts_with("NET/"))["text"]
    for text in texts:
        if (match := _INSTANCE.search(text)) is not None:
            return adapters_of(match[1])
    told = [match for text in texts if (match := _SPEED.search(text)) is not None]
    speeds = {match[1]: match[2] for match in told}
    if not speeds or len(set(speeds.values())) > 1:
        return None
    mbit_per_s = int(next(iter(speeds.values())))
    adapter = "adapter" if len(speeds) == 1 else "adapters"
    return Adapters(
        name=f"{len(speeds)} {adapter} of {mbit_per_s / 1000:g} Gb/s",
        n_adapters=len(speeds),
        gb_per_s_each=mbit_per_s / 8000,
        source="NCCL's log",
    )


def roof_of(
    run: Run, joined: Fabric | None, n_ranks: int, n_nodes: int | None, n_local: int | None
) -> Roof | str:
    """The roof of so many ranks on so many nodes, or why it is not known.

    Args:
        run: The run, whose log may tell the adapters.
        joined: What joins the GPUs of a node, if known.
        n_ranks: Ranks of the group.
        n_nodes: Nodes that they lie on, if known.
        n_local: Ranks on the node with most, if known.
    """
    if n_nodes is None or n_local is None:
        return NO_HOSTS
    if n_nodes > 1:
        between = adapters(run)
        return (
            NO_ADAPTERS if between is None else Roof(between.roof_gb_per_s(n_local), between.name)
        )
    if joined is None:
        return NO_FABRIC
    if not joined.is_switched and n_ranks < N_GPUS_OF_A_NODE:
        return PART_OF_LINKS
    return Roof(joined.gb_per_s, joined.name)
