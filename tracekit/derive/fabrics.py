"""What joins the GPUs of a run: within a node by their model, between nodes by NCCL's log."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.gpu_models import models
from tracekit.derive.links import said
from tracekit.devices import Adapters, Fabric, adapters_of, fabric_of

if TYPE_CHECKING:
    from tracekit.store import Run

_SPEED = re.compile(r"\[(\d{1,3})\] .*\bspeed=(\d{1,8})\b")
"""Number and Mb/s of an adapter, as NCCL_DEBUG_SUBSYS=INIT,NET prints them."""
_INSTANCE = re.compile(r"Running on ([\w.-]{3,30}) platform")
"""As aws-ofi-nccl prints it."""


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
