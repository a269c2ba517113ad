"""What experts of a mixture-of-experts model take on each rank, layer by layer.

Kernels of experts are known by name. Where none is, experts are the matrix products between the two
exchanges of a layer: every all-to-all that opens a pair sends tokens to experts, the next brings
them back, forward and backward, as many bytes as came. What else is exchanged, as rows of embedding
tables, does not come back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.activity import COMPUTE, device_of_call
from tracekit.derive.averages import averages, of_ranks
from tracekit.derive.cached import cached, remembered
from tracekit.derive.instances import instances
from tracekit.derive.kernel_kinds import COMMUNICATION
from tracekit.derive.stages import stages
from tracekit.derive.steps import launched
from tracekit.derive.work_classes import EXPERTS, LINEAR, work_class
from tracekit.schema.table import I64, Column, Table

if TYPE_CHECKING:
    from collections.abc import Collection

    from tracekit.store import Run

EXCHANGES = ("all_to_all", "dispatch", "combine")
MIN_EXCHANGE_SHARE = 0.01
"""Smaller than this against the largest exchange: ranks tell each other how many tokens come."""
MIN_BACK_SHARE = 0.4
"""Of all exchanges every second one brings tokens back, less those at the ends of the trace."""
EXPERT_WORK = Table(
    "expert_work",
    "stretch of compute between two communications in one step of one rank",
    (
        Column("step", I64, "", "step that launched it"),
        Column("stretch", I64, "", "how many communications began before it in the step"),
        Column("n_exchanges", I64, "", "exchanges of tokens that began before it in the step"),
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

    `group` is the one that exchanges tokens, `layer` the number of exchanges before it in the step,
    forward and backward: a rank that got no token has 0 ns there. Where ranks of a group exchange
    unequally often in a step, that is one layer. By all of them; empty without experts.
    """
    every = _expert_stretches(run).join(_groups(run), on="rank")
    n_layers = pl.col("n_exchanges").max().over("group", "rank", "step") // 2
    is_alike = n_layers.n_unique().over("group", "step") == 1
    rows = every.with_columns(layer=pl.when(is_alike).then("n_exchanges").otherwise(0))
    layers = rows.filter(pl.col("expert_ns") > 0).select("group", "step", "layer").unique()
    ranks = every.select("group", "rank").unique()
    own = rows.group_by("rank", "group", "step", "layer").agg(pl.col("expert_ns").sum())
    return (
        layers.join(ranks, on="group")
        .join(own, on=["rank", "group", "step", "layer"], how="left", validate="1:1")
        .select("rank", "group", "step", "layer", pl.col("expert_ns").fill_null(0))
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
    rows = of_ranks(run, stretches).filter(pl.col("step").is_in(steps)).collect()
    if rows["n_expert_kernels"].sum():
        return rows
    is_between = pl.col("n_exchanges") % 2 == 1
    between = rows.filter(is_between)
    is_linear = 2 * between["linear_ns"].sum() >= between["compute_ns"].sum()
    if not is_linear or not _is_brought_back(run):
        return rows
    is_expert = is_between & (pl.col("linear_ns") > 0)
    return rows.with_columns(expert_ns=pl.when(is_expert).then("compute_ns").otherwise(0))


def expert_extra_ns(run: Run, ranks: Collection[int]) -> float:
    """How much longer experts of some ranks take than the median rank of their group, ns a step.

    Summed over layers, of the rank with most; 0 without experts. Of two ranks the lower is usual.
    """
    usual_ns = pl.col("expert_ns").quantile(0.5, "lower").over("group", "step", "layer")
    extra = (
        expert_layers(run)
        .with_columns(extra_ns=pl.col("expert_ns") - usual_ns)
        .filter(pl.col("rank").is_in(list(ranks)))
        .group_by("rank")
        .agg(pl.col("extra_ns").sum())
    )
    most_ns = extra["extra_ns"].max()
    return float(most_ns) / max(len(averages(run).steps), 1) if isinstance(most_ns, float) else 0.0


def _is_brought_back(run: Run) -> bool:
    """Whether a group sends back as many bytes as it has sent: tokens; nothing else comes back.

    Summed over the members, since a rank with many tokens gets more of them than it had.
    """
    total = pl.col("total_bytes")
    is_large = total >= MIN_EXCHANGE_SHARE * total.max().over("group")
    is_same = (total.shift(-1).over("group") - total).abs() <= MIN_EXCHANGE_SHARE * total
    exchanges = (
        instances(run)
        .filter(pl.col("operation").is_in(list(EXCHANGES)) & pl.col("bytes_in").is_not_null())
        .group_by("group", "instance")
        .agg(pl.col("start_ns").min(), total_bytes=pl.col("bytes_in").sum())
        .filter(is_large)
        .sort("group", "start_ns")
        .select(is_same.fill_null(value=False).alias("is_same"))
        .collect()
    )
    share = exchanges["is_same"].mean()
    return isinstance(share, float) and share >= MIN_BACK_SHARE


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
        .select("stream", "start_ns", device=device_of_call(run), is_exchange=pl.lit(value=True))
        .unique(["device", "stream", "start_ns"])
    )
    is_communication = pl.col("class") == COMMUNICATION
    n_exchanges = pl.col("is_exchange").cast(pl.Int64).cum_sum().over("step")
    is_expert = work_class() == EXPERTS
    dur_ns = pl.col("end_ns") - pl.col("start_ns")
    return (
        launched(run, rank)
        .join(exchanges, on=["device", "stream", "start_ns"], how="left", validate="m:1")
        .with_columns(pl.col("is_exchange").fill_null(value=False))
        .sort("start_ns", "end_ns")
        .with_columns(
            stretch=is_communication.cast(pl.Int64).cum_sum().over("step"),
            n_exchanges=n_exchanges,
        )
        .filter(pl.col("class") == COMPUTE)
        .group_by("step", "stretch")
        .agg(
            n_exchanges=pl.col("n_exchanges").first(),
            n_expert_kernels=is_expert.sum().cast(pl.Int64),
            expert_ns=dur_ns.filter(is_expert).sum(),
            linear_ns=dur_ns.filter(work_class() == LINEAR).sum(),
            compute_ns=dur_ns.sum(),
        )
        .sort("step", "stretch")
        .select(list(EXPERT_WORK.schema))
        .collect()
    )
