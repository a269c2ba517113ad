"""What encoders of other modalities than text take: kernels launched inside spans that name one.

Spans are annotations of the loop (`record_function`, `c.phase("vision encoder")`) and modules,
where they were recorded. They show the forward pass; what autograd launches later lies outside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.activity import COMPUTE, activity
from tracekit.derive.averages import averaged, averages
from tracekit.derive.cached import cached, remembered
from tracekit.derive.intervals import union
from tracekit.derive.stages import stages
from tracekit.derive.steps import begun_inside, spans
from tracekit.schema.table import I64, Column, Table

if TYPE_CHECKING:
    from collections.abc import Collection

    from tracekit.store import Run

ENCODER, REST = "encoder, forward", "other compute"
WITH_BACKWARD = 3
"""A backward pass takes about twice as long as its forward pass, and no span shows it."""
_ENCODER = (
    r"Vision|VISION|(?:\b|_)vision"  # no division
    r"|(?i:visual|image|audio|video|speech|modality|multi_?modal|whisper|\bvit\b)"
    r"|(?i:clip_(?:encoder|model|tower))"  # no clipping of gradients
)
_MODULE = "nn.Module: "
"""Frames of Python that are modules; a file's name, as train_imagenet.py, names no encoder."""
ENCODER_WORK = Table(
    "encoder_work",
    "step of one rank with its encoder's compute",
    (
        Column("step", I64, "", "step in which the kernels began"),
        Column("n_spans", I64, "", "spans that name an encoder"),
        Column("encoder_ns", I64, "ns", "sum of the kernels launched in them"),
        Column("rest_ns", I64, "ns", "sum of all other compute kernels"),
    ),
)


def encoder_work(run: Run, rank: int) -> pl.LazyFrame:
    """The encoder's compute of one rank in each step (`ENCODER_WORK`), by step."""
    return cached(run, ENCODER_WORK, lambda: _encoder_work(run, rank), rank)


@remembered
def encoder_totals(run: Run) -> pl.DataFrame:
    """Compute of ranks that run an encoder in two classes, `ENCODER` and `REST`.

    Rows as those of `work_totals`; empty where no span names an encoder.
    """
    work = averaged(run, encoder_work).filter(pl.col("n_spans").sum().over("rank") > 0)
    return (
        work.join(stages(run).select("rank", "stage"), on="rank", validate="m:1")
        .rename({"encoder_ns": ENCODER, "rest_ns": REST})
        .unpivot(
            [ENCODER, REST],
            index=["rank", "stage", "step"],
            variable_name="class",
            value_name="total_ns",
        )
        .sort("rank", "step", "class")
    )


def encoder_extra_ns(run: Run, ranks: Collection[int]) -> float:
    """How much longer encoders of some ranks take than the median rank of their stage, ns a step.

    Both passes, of the rank with most, in the steps in which it exceeds the median; 0 without
    encoders. Of two ranks the lower is usual.
    """
    usual_ns = pl.col("total_ns").quantile(0.5, "lower").over("stage", "step")
    extra = (
        encoder_totals(run)
        .filter(pl.col("class") == ENCODER)
        .with_columns(extra_ns=(pl.col("total_ns") - usual_ns).clip(0))
        .filter(pl.col("rank").is_in(list(ranks)))
        .group_by("rank")
        .agg(pl.col("extra_ns").sum())
    )
    most_ns = extra["extra_ns"].max()
    n_steps = max(len(averages(run).steps), 1)
    return WITH_BACKWARD * float(most_ns) / n_steps if isinstance(most_ns, float) else 0.0


def _encoder_work(run: Run, rank: int) -> pl.DataFrame:
    end_ns = (pl.col("start_ns") + pl.col("dur_ns")).alias("end_ns")
    is_module = pl.col("name").str.starts_with(_MODULE)
    is_named = pl.col("name").str.contains(_ENCODER) & pl.col("thread").is_not_null()
    named = pl.concat(
        [
            spanning.filter(is_named).select("thread", "start_ns", end_ns)
            for spanning in (
                run.scan("annotations", rank),
                run.scan("python_frames", rank).filter(is_module),
            )
        ]
    )
    opened = union(named, ["thread"]).rename(
        {"thread": "launch_thread", "start_ns": "opens_ns", "end_ns": "closes_ns"}
    )
    steps = spans(run, rank)
    inside = pl.col("launch_start_ns") < pl.col("closes_ns")
    dur_ns = pl.col("end_ns") - pl.col("start_ns")
    kernels = (
        begun_inside(activity(run, rank).filter(pl.col("class") == COMPUTE), steps)
        .sort("launch_start_ns")
        .join_asof(
            opened.sort("opens_ns"),
            left_on="launch_start_ns",
            right_on="opens_ns",
            by="launch_thread",
            strategy="backward",
            check_sortedness=False,
        )
        .with_columns(is_inside=inside.fill_null(value=False))
    )
    return (
        kernels.group_by("step")
        .agg(
            n_spans=pl.col("opens_ns").filter("is_inside").n_unique().cast(pl.Int64),
            encoder_ns=dur_ns.filter("is_inside").sum(),
            rest_ns=dur_ns.filter(~pl.col("is_inside")).sum(),
        )
        .sort("step")
        .collect()
    )
