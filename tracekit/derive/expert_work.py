"""What experts of a mixture-of-experts model take on each rank, layer by layer.

Kernels of experts are known by name. Where none is, experts are the matrix products between the two
exchanges of a layer: every all-to-all that opens a pair sends tokens to experts, the next brings
them back, forward and backward. What else is exchanged, as rows of embedding tables, is no token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.activity import COMPUTE, activity
from tracekit.derive.averages import averages
from tracekit.derive.cached import cached, remembered
from tracekit.derive.instances import instances
from tracekit.derive.kernel_kinds import COMMUNICATION
from tracekit.derive.stages import stages
from tracekit.derive.steps import begun_inside, spans
from tracekit.derive.work_classes import EXPERTS, LINEAR, work_class
from tracekit.schema.table import FLAG, I64, Column, Table

if TYPE_CHECKING:
    from collections.abc import Collection

    from tracekit.store import Run

EXCHANGES = ("all_to_all", "dispatch", "combine")
MIN_EXCHANGE_SHARE = 0.01
"""Smaller than this against the largest exchange: ranks tell each other how many tokens come."""
EXPERT_WORK = Table(
    "expert_work",
    "stretch of compute between two communications in one step of one rank",
    (
        Column("step", I64, "", "step in which it began"),
        Column("stretch", I64, "", "how many communications began before it in the step"),
        Column("is_exchanged", FLAG, "", "lies between the two exchanges of a layer"),
        Column("n_expert_kernels", I64, "", "kernels of experts, by name"),
        Column("expert_ns", I64, "ns", "sum of their durations"),
        Column("linear_ns", I64, "ns", "sum of the durations of its matrix products"),
        Column("compute_ns", I64, "ns", "sum of the durations of all its kernels"),
    ),
)


def stretches(run: Run, rank: int) -> pl.LazyFrame:
    """Compute of one rank between communications (`EXPERT_WORK`), by step and stretch."""
    return cached(run, EXPERT_WORK, lambda: _stretches(run, rank), rank)


@remembered
def expert_layers(run: Run) -> pl.DataFrame:
    """Expert compute of the averaged steps: `rank`, `group`, `step`, `layer`, `expert_ns`.

    `group` is the one that exchanges tokens, `layer` counts stretches with expert work in a step,
    forward and backward. Where ranks of a group have other numbers of stretches in a step, it is
    one layer. By all of them; empty without experts.
    """
    rows = _expert_stretches(run).filter(pl.col("expert_ns") > 0)
    layer = pl.int_range(pl.len(), dtype=pl.Int64).over("rank", "step")
    found = (
        rows.join(_groups(run), on="rank").sort("rank", "step", "stretch").with_columns(layer=layer)
    )
    n_layers = pl.col("layer").max().over("group", "rank", "step")
    is_alike = n_layers.n_unique().over("group", "step") == 1
    return (
        found.with_columns(layer=pl.when(is_alike).then("layer").otherwise(0))
        .group_by("rank", "group", "step", "layer")
        .agg(pl.col("expert_ns").sum())
        .sort("group", "step", "layer", "rank")
    )


def other_unevenness(run: Run) -> float:
    """How far the rank with most compute outside of experts exceeds the mean, as a share of it."""
    rest = (
        _expert_stretches(run)
        .group_by("rank", "step")
        .agg(rest_ns=(pl.col("compute_ns") - pl.col("expert_ns")).sum())
        .join(stages(run).select("rank", "stage"), on="rank", validate="m:1")
        .group_by("stage", "step")
        .agg(max_ns=pl.col("rest_ns").max(), mean_ns=pl.col("rest_ns").mean())
        .group_by("stage")
        .agg(pl.col("max_ns", "mean_ns").sum())
        .filter(pl.col("mean_ns") > 0)
    )
    most = (rest["max_ns"] / rest["mean_ns"]).max()
    return most - 1 if isinstance(most, float) else 0.0


@remembered
def _expert_stretches(run: Run) -> pl.DataFrame:
    """Stretches of the averaged steps of all ranks; `expert_ns` is all of an expert's stretch.

    By name, where any kernel is an expert's by its name; else what lies between two exchanges.
    """
    steps = list(averages(run).steps)
    rows = pl.concat(
        [
            stretches(run, rank)
            .filter(pl.col("step").is_in(steps))
            .select(pl.lit(rank, dtype=pl.Int64).alias("rank"), pl.all())
            for rank in run.ranks
        ]
    ).collect()
    if rows["n_expert_kernels"].sum():
        return rows
    between = rows.filter("is_exchanged")
    if 2 * between["linear_ns"].sum() < between["compute_ns"].sum():
        return rows
    is_expert = pl.col("is_exchanged") & (pl.col("linear_ns") > 0)
    n_layers = is_expert.sum().over("rank", "step")
    is_alike = (n_layers == n_layers.max().over("step")).all()  # else they are no layers
    return rows.with_columns(
        expert_ns=pl.when(is_expert & is_alike).then("compute_ns").otherwise(0)
    )


def expert_extra_ns(run: Run, ranks: Collection[int]) -> float:
    """How much longer experts of some ranks take than the median rank of their group, ns a step.

    Summed over layers, of the rank with most; 0 without experts.
    """
    usual_ns = pl.col("expert_ns").median().over("group", "step", "layer")
    extra = (
        expert_layers(run)
        .with_columns(extra_ns=pl.col("expert_ns") - usual_ns)
        .filter(pl.col("rank").is_in(list(ranks)))
        .group_by("rank")
        .agg(pl.col("extra_ns").sum())
    )
    most_ns = extra["extra_ns"].max()
    return float(most_ns) / max(len(averages(run).steps), 1) if isinstance(most_ns, float) else 0.0


def _groups(run: Run) -> pl.DataFrame:
    """`rank`, `group`: the group with which a rank exchanges most tokens."""
    return (
        instances(run)
        .filter(pl.col("operation").is_in(list(EXCHANGES)))
        .group_by("rank", "group")
        .agg(n=pl.len())
        .sort("rank", "n", "group", descending=[False, True, False])
        .unique("rank", keep="first", maintain_order=True)
        .select("rank", "group")
        .collect()
    )


def _stretches(run: Run, rank: int) -> pl.DataFrame:
    is_large = pl.col("bytes_in") >= MIN_EXCHANGE_SHARE * pl.col("bytes_in").max()
    exchanges = (
        instances(run)
        .filter((pl.col("rank") == rank) & pl.col("operation").is_in(list(EXCHANGES)))
        .filter(is_large.fill_null(value=True))
        .select(start_ns="start_ns", stream="stream", is_exchange=pl.lit(value=True))
        .unique(["start_ns", "stream"])
    )
    is_communication = pl.col("class") == COMMUNICATION
    n_exchanges = pl.col("is_exchange").cast(pl.Int64).cum_sum().over("step")
    is_expert = work_class() == EXPERTS
    dur_ns = pl.col("end_ns") - pl.col("start_ns")
    return (
        begun_inside(activity(run, rank), spans(run, rank))
        .join(exchanges, on=["start_ns", "stream"], how="left")
        .with_columns(pl.col("is_exchange").fill_null(value=False))
        .sort("start_ns", "end_ns")
        .with_columns(
            stretch=is_communication.cast(pl.Int64).cum_sum().over("step"),
            is_exchanged=n_exchanges % 2 == 1,
        )
        .filter(pl.col("class") == COMPUTE)
        .group_by("step", "stretch")
        .agg(
            is_exchanged=pl.col("is_exchanged").first(),
            n_expert_kernels=is_expert.sum().cast(pl.Int64),
            expert_ns=dur_ns.filter(is_expert).sum(),
            linear_ns=dur_ns.filter(work_class() == LINEAR).sum(),
            compute_ns=dur_ns.sum(),
        )
        .sort("step", "stretch")
        .select(list(EXPERT_WORK.schema))
        .collect()
    )
