"""The communicators of a run: who is in each, and which parallel dimension it serves.

What the job calls a group says its dimension, as Megatron, DeepSpeed and device meshes do; else it
is inferred from what it does: messages are a pipeline's, all-to-all is the experts'; neighbours
(ranks that follow each other, less than all) are tensor parallel, all others data parallel. Groups
of one dimension whose members lie equally far apart are peers: the same traffic should take them
the same time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.cached import cached
from tracekit.derive.instances import group_label
from tracekit.derive.kernel_kinds import POINT_TO_POINT
from tracekit.schema.table import FLAG, I64, TEXT, Column, Table

if TYPE_CHECKING:
    from tracekit.store import Run

GROUPS = Table(
    "groups",
    "communicator",
    (
        Column("group", TEXT, "", "group as a person reads it; null where no trace names it"),
        Column("description", TEXT, "", "what it is for, as the job says"),
        Column("members", pl.List(pl.Int64()), "", "global ranks, sorted; null when not known"),
        Column("n_members", I64, "", "how many they are"),
        Column("layout", TEXT, "", "distances of its members: equal for peers"),
        Column("dimension", TEXT, "", "data, tensor, pipeline, expert, context; null: not known"),
        Column("is_inferred", FLAG, "", "whether the dimension was inferred"),
    ),
)
NAMED = (
    ("data", r"(?i)expert_?data"),
    ("expert", r"(?i)expert|\bep\b|moe|_ep\b"),
    ("pipeline", r"(?i)pipeline|\bpp\b|_pp\b|embedding"),
    ("tensor", r"(?i)tensor|\btp\b|_tp\b|model_parallel_group"),
    ("data", r"(?i)data|\bdp\b|_dp\b|dp_|fsdp|shard|replicate|zero"),
    ("context", r"(?i)context|\bcp\b|_cp\b|ulysses|sequence"),
)
"""What groups are called, in the order in which it is asked: pipelines are "model parallel" too."""


def groups(run: Run) -> pl.DataFrame:
    """All communicators of the run (`GROUPS`), by name."""
    return cached(run, GROUPS, lambda: _groups(run)).collect()


def _groups(run: Run) -> pl.DataFrame:
    members = pl.col("members").list.sort()
    is_message = pl.col("operation").is_in(list(POINT_TO_POINT))
    named = (
        run.scan_all("collectives")
        .with_columns(members=members, listing=members.hash())
        .group_by("group", "listing")
        .agg(
            pl.col("group_description").drop_nulls().first().alias("description"),
            pl.col("members").first(),
            is_pipeline=is_message.any(),
            is_expert=(pl.col("operation") == "all_to_all").any(),
        )
        .with_columns(group=group_label(), n_members=pl.col("members").list.len().cast(pl.Int64))
        .with_columns(
            layout=pl.col("members")
            .list.diff()
            .list.drop_nulls()
            .cast(pl.List(pl.String))
            .list.join(","),
            called=_called(pl.col("description")),
        )
        # lists of members are the bulk of a large job, and no order is asked for
        .collect(engine="streaming")
    )
    return (
        named.with_columns(
            dimension=pl.coalesce("called", _done(run.manifest.world_size)),
            is_inferred=pl.col("called").is_null(),
        )
        .select(list(GROUPS.schema))
        .unique("group", keep="first", maintain_order=True)
        .sort("group")
    )


def _called(text: pl.Expr) -> pl.Expr:
    found = pl.lit(None, dtype=pl.String)
    for dimension, pattern in reversed(NAMED):
        found = pl.when(text.str.contains(pattern)).then(pl.lit(dimension)).otherwise(found)
    return found


def _done(n_ranks: int) -> pl.Expr:
    """The dimension by what a group does, and where its members lie."""
    are_neighbours = (pl.col("n_members") > 1) & pl.col("layout").str.contains(r"^1(,1)*$")
    return (
        pl.when("is_pipeline")
        .then(pl.lit("pipeline"))
        .when("is_expert")
        .then(pl.lit("expert"))
        .when(are_neighbours & (pl.col("n_members") < n_ranks))
        .then(pl.lit("tensor"))
        .when(pl.col("members").is_not_null())
        .then(pl.lit("data"))
    )
