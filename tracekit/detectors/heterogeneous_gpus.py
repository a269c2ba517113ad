"""GPUs of different models work on equal shares, and the fast ones wait for the slow ones.

What it measures:
    How long the same kernels (name and size) take on each GPU model, and how much longer the ranks
    with the slowest model compute.

Formula:
    Ratio of a model = Σ n · mean / Σ n · fastest mean, over kernels that all models ran in the
    averaged steps. Measured: (max C − mean C) / T, with C the compute of a rank and the mean over
    all. With shares in proportion to speed all would end together.

Threshold:
    Found where ranks have GPUs of several models, the slowest one's ratio − 1 is at least
    `min_slower_share`, and measured at least `min_step_share`. Skipped where models are not known.

Evidence:
    Ranks, compute and ratio by model; the share of the batch that its speed is worth.

What-if saving:
    High: work is shared by speed, so that all take n / Σ speed. Low: as far as the fast ranks are
    seen to wait.

Recommendation:
    Give each rank a share of the batch in proportion to its speed, or keep models apart.

References:
    https://arxiv.org/abs/2411.01075 (Cephalo), https://arxiv.org/abs/2512.12476 (HetRL).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.derive.averages import averages, mean_steps
from tracekit.derive.gpu_models import models
from tracekit.derive.kernel_totals import same_kernels
from tracekit.derive.savings import saving
from tracekit.detectors import Detector, finding, number, skipped
from tracekit.detectors._cures import by_speed
from tracekit.detectors._imbalance import waiting_ns
from tracekit.findings import (
    Cause,
    Column,
    Confidence,
    Evidence,
    Finding,
    Level,
    Published,
    Scope,
    Status,
)
from tracekit.units import Quantity, Unit, limit, text

if TYPE_CHECKING:
    from tracekit.store import Run

_HOW = "Record the same steps on all ranks, with kernels that all models run."


@dataclass(frozen=True, slots=True)
class Limits:
    """When different GPUs count."""

    min_slower_share: float = limit(
        0.1, Unit.SHARE, "Variants of one model (clock, power limit) differ by some per cent."
    )
    min_step_share: float = limit(0.02, Unit.SHARE, "Less than 2 % of a step is not worth a look.")


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for the slowest model."""
    known = models(run)
    if len(known) < len(run.ranks):
        return (skipped(DETECTOR, f"GPU models are not recorded of all ranks. {DETECTOR.how}"),)
    if len(set(known.values())) < 2:
        return (_one_model(next(iter(known.values())), limits),)
    table, step_ns = _by_model(run, known), number(mean_steps(run)["dur_ns"].mean())
    if table.height < 2:
        return (skipped(DETECTOR, f"no step holds activity of several models. {_HOW}"),)
    slowest = table.row(0, named=True)
    compute_ns = mean_steps(run).group_by("rank").agg(pl.col("compute_ns").mean())["compute_ns"]
    excess_ns = number(compute_ns.max()) - number(compute_ns.mean())
    is_small = excess_ns < limits.min_step_share * step_ns
    if slowest["ratio"] is None and not is_small:
        models_seen = ", ".join(sorted(table["model"]))
        why = f"no kernel of the averaged steps ran on all models: {models_seen}. {_HOW}"
        return (skipped(DETECTOR, why),)
    slower = number(slowest["ratio"]) - 1
    shown: dict[str, Any] = {
        "measured": Quantity(min(excess_ns / step_ns, 1.0), Unit.SHARE),
        "limit": Quantity(limits.min_step_share, Unit.SHARE),
        "confidence": Confidence(
            Level.MEDIUM, "the same kernels of the same size are compared; clocks are not recorded"
        ),
        "evidence": (_evidence(table),),
    }
    if slower < limits.min_slower_share or is_small:
        return (finding(DETECTOR, Status.CLEAR, **shown),)
    return (
        finding(
            DETECTOR,
            Status.FOUND,
            subject=str(slowest["model"]),
            title=f"{slowest['model']} runs the same kernels {text(slower, Unit.SHARE)} longer "
            f"than {table['model'][-1]}",
            cause=Cause.HETEROGENEOUS_DEVICE,
            ranks=tuple(slowest["ranks"]),
            steps=averages(run).steps,
            saving=saving(
                min(_balanced_ns(table), waiting_ns(run)),
                _balanced_ns(table),
                step_ns,
                mean_steps(run).height,
                "work is shared in proportion to speed; low end: as far as the fast ranks are seen "
                "to wait; upper bound",
            ),
            scope=Scope(victims=tuple(table.slice(1)["ranks"].explode().sort())),
            why="equal shares of the work on GPUs of different models",
            **shown,
        ),
    )


def _one_model(model: str, limits: Limits) -> Finding:
    return finding(
        DETECTOR,
        Status.CLEAR,
        title=f"All GPUs are of one model: {model}",
        measured=Quantity(0.0, Unit.SHARE),
        limit=Quantity(limits.min_step_share, Unit.SHARE),
        confidence=Confidence(Level.HIGH, "the traces name the model of every rank"),
    )


def _balanced_ns(table: pl.DataFrame) -> float:
    """What the longest rank computes less where each has a share in proportion to its speed."""
    n_ranks = table["ranks"].list.len()
    speed = (n_ranks / table["ratio"]).sum()
    fastest_ns = number((table["compute_ns"] / table["ratio"]).max())
    balanced_ns = fastest_ns * float(n_ranks.sum()) / float(speed)
    return max(number(table["compute_ns"].max()) - balanced_ns, 0.0)


def _by_model(run: Run, known: dict[int, str]) -> pl.DataFrame:
    """`model`, `ranks`, `compute_ns` (mean), `ratio` to the fastest; the slowest first.

    `ratio` is null where no kernel ran on all models.
    """
    model = pl.col("rank").replace_strict(known, return_dtype=pl.String)
    compute = (
        mean_steps(run)
        .with_columns(model=model)
        .group_by("model")
        .agg(ranks=pl.col("rank").unique().sort(), compute_ns=pl.col("compute_ns").mean())
    )
    each = (
        same_kernels(run, averages(run).steps)
        .with_columns(model=model)
        .group_by("model", "name", "work")
        .agg(
            n=pl.col("n_kernels").mean(),
            mean_ns=pl.col("total_ns").sum() / pl.col("n_kernels").sum(),
        )
    )
    common = each.filter(pl.col("model").n_unique().over("name", "work") == compute.height)
    fastest_ns = pl.col("mean_ns").min().over("name", "work")
    usual_n = pl.col("n").mean().over("name", "work")
    ratios = (
        common.with_columns(fastest_ns=fastest_ns, n=usual_n)
        .group_by("model")
        .agg(
            ratio=(pl.col("n") * pl.col("mean_ns")).sum()
            / (pl.col("n") * pl.col("fastest_ns")).sum()
        )
    )
    least = pl.col("ratio").min()
    return (
        compute.join(ratios, on="model", how="left", validate="1:1")
        .with_columns(ratio=pl.col("ratio") / least)
        .sort("ratio", "model", descending=[True, False])
    )


def _evidence(table: pl.DataFrame) -> Evidence:
    speed = pl.col("ranks").list.len() / pl.col("ratio")
    rows = table.select(
        "model",
        pl.col("ranks").list.head(8).cast(pl.List(pl.String)).list.join(", "),
        "compute_ns",
        "ratio",
        share=speed / speed.sum() / pl.col("ranks").list.len(),
    )
    return Evidence(
        title="GPU models, mean step",
        columns=(
            Column("model"),
            Column("ranks"),
            Column("compute", Unit.NS),
            Column("the same kernels, against the fastest", Unit.RATIO),
            Column("share of the batch that a rank is worth", Unit.SHARE),
        ),
        rows=tuple(rows.iter_rows()),
    )


DETECTOR = Detector(
    id="heterogeneous-gpus",
    title="GPUs of different models share the work equally",
    clear="GPUs of different models end together",
    needs=(),
    how="Record with torch.profiler of a GPU job: it names the device of each rank.",
    min_ranks=2,
    limits=Limits,
    detect=detect,
    cure=by_speed,
    published=(Published(21, "Cephalo", "2411.01075"),),
)
