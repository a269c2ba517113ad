"""What detectors of unequal work share: how unequal it is, whose it is, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import polars as pl

from tracekit.derive.activity import has_device_events
from tracekit.derive.averages import averages, breakdowns, mean_steps
from tracekit.derive.causes import cause_of_slowness
from tracekit.derive.encoder_work import ENCODER, WITH_BACKWARD, encoder_totals
from tracekit.derive.expert_work import expert_extra_ns
from tracekit.derive.gpu_models import models
from tracekit.derive.samples import longer_share
from tracekit.derive.stages import stages
from tracekit.derive.work_classes import ATTENTION, EXPERTS, class_at_fault
from tracekit.derive.work_totals import unevenness, work_totals
from tracekit.detectors import number
from tracekit.findings import Cause, Column, Evidence
from tracekit.units import Unit

if TYPE_CHECKING:
    from collections.abc import Collection

    from tracekit.store import Run

N_SHOWN = 32
MIN_ENCODER_SHARE = 0.7
"""An encoder whose excess, both passes, is so much of the whole excess is its cause."""
MIN_EXPERT_SHARE = 0.5
UNTOLD_SHARE = 0.25
"""In a pipeline of equal stages the others may wait for a longer one in one of its micro-batches
only, and hardly any has fewer than four."""
MIN_LONGER_SHARE = 0.1
"""Samples that the loop told are longer by so much (squared) explain more work."""
CAUSE_OF_CLASS = {
    ATTENTION: Cause.SEQUENCE_LENGTH_IMBALANCE,
    EXPERTS: Cause.EXPERT_IMBALANCE,
}
MIN_WORST_SHARE = 0.25
"""A rank that is the worst in fewer steps than this takes its turn like all others."""


@dataclass(frozen=True, slots=True)
class Imbalance:
    """Of one class of work: how far the worst rank of each step exceeds the others.

    `excess_ns` over the mean and `over_median_ns` over the median, a step; `uneven` the first as a
    share of the mean.
    """

    excess_ns: float
    over_median_ns: float
    uneven: float


def imbalance(uneven: pl.DataFrame, work: str, n_steps: int) -> Imbalance | None:
    """How unequal a class of work is (rows of `unevenness`); None where there is none of it.

    Of several stages the one with the greatest excess counts: the others wait for it. Over the
    median it is the one of each step, since stages may take turns.
    """
    by_stage = _by_stage(uneven, work)
    if by_stage.is_empty() or by_stage["mean_ns"][0] <= 0:
        return None
    top = by_stage.row(0, named=True)
    over_median_ns = (
        uneven.filter(pl.col("class") == work)
        .group_by("step")
        .agg(over_ns=(pl.col("max_ns") - _others_ns()).max())
    )["over_ns"].sum()
    return Imbalance(
        excess_ns=top["excess_ns"] / n_steps,
        over_median_ns=number(over_median_ns) / n_steps,
        uneven=top["excess_ns"] / top["mean_ns"],
    )


def _by_stage(uneven: pl.DataFrame, work: str) -> pl.DataFrame:
    """A class of work by `stage`, summed over steps, with its `excess_ns`; the greatest first."""
    return (
        uneven.filter(pl.col("class") == work)
        .group_by("stage")
        .agg(pl.col("max_ns", "mean_ns").sum(), median_ns=_others_ns().sum())
        .with_columns(excess_ns=pl.col("max_ns") - pl.col("mean_ns"))
        .sort("excess_ns", "stage", descending=[True, False])
    )


def _others_ns() -> pl.Expr:
    """What the ranks but the longest take, in the median: of two, that is the other one."""
    of_two_ns = 2 * pl.col("median_ns") - pl.col("max_ns")
    return pl.when(pl.col("n_ranks") == 2).then(of_two_ns).otherwise("median_ns")


def at_fault(uneven: pl.DataFrame, work: str) -> tuple[int, ...]:
    """Ranks that have most of a class of work in at least a quarter of the steps, sorted.

    Of the stage that `imbalance` measures. Where all ranks have as much, none has most.
    """
    top = _by_stage(uneven, work).head(1)
    rows = uneven.filter(pl.col("class") == work).join(top, on="stage", how="semi")
    n_steps = rows["step"].n_unique()
    counts = rows.filter(pl.col("max_ns") > pl.col("mean_ns")).group_by("worst").agg(n=pl.len())
    return tuple(counts.filter(pl.col("n") >= MIN_WORST_SHARE * n_steps)["worst"].sort())


class UnevenLimits(Protocol):
    """Limits of detectors that ask how uneven a class of work is."""

    @property
    def min_uneven(self) -> float:
        """Of devices."""

    @property
    def min_host_uneven(self) -> float:
        """Of training threads that stand for devices."""


def least_uneven(run: Run, limits: UnevenLimits) -> float:
    """The limit of unevenness that holds for a run."""
    return limits.min_uneven if has_device_events(run) else limits.min_host_uneven


def waiting_ns(run: Run) -> float:
    """What the rank that waits most waits exposed in the mean step."""
    told_ns = number(mean_steps(run)["exposed_waiting_ns"].max())
    return max(told_ns, held_apart_ns(run, run.ranks))


def held_apart_ns(run: Run, ranks: Collection[int]) -> float:
    """Waiting where it cannot be told from transfer, in the mean step: a part of it, to be sure.

    Of what one rank stands in communication longer than that one of its peers which does so least.
    """
    held_ns = pl.col("exposed_waiting_ns") + pl.col("unsplit_communication_ns")
    in_step = (
        breakdowns(run)
        .filter(pl.col("is_averaged") & pl.col("rank").is_in(list(ranks)))
        .group_by("step")
        .agg(apart_ns=held_ns.max() - held_ns.min())
    )
    return UNTOLD_SHARE * number(in_step["apart_ns"].mean())


def by_rank(totals: pl.DataFrame, classes: tuple[str, ...], n_steps: int) -> Evidence:
    """Time of each rank in some classes of work, a step; the most of the first class first."""
    sums = [
        (pl.col("total_ns").filter(pl.col("class") == name).sum() / n_steps).alias(name)
        for name in classes
    ]
    rows = totals.group_by("rank").agg(sums).sort(classes[0], "rank", descending=[True, False])
    return Evidence(
        title="Work of each rank, a step",
        columns=(Column("rank"), *(Column(name, Unit.NS) for name in classes)),
        rows=tuple(rows.head(N_SHOWN).iter_rows()),
    )


def cause_of_unevenness(run: Run, slow: list[int], kernels: pl.DataFrame) -> Cause:
    """Why some ranks compute longer than others of their stage.

    One class of work alone names the cause; else more kernels are more work, and the same ones
    slower another model of GPU or a slow device.

    Args:
        run: the run.
        slow: the ranks.
        kernels: how kernels of each rank differ from the median rank's (`differences`).
    """
    places = stages(run).filter(pl.col("rank").is_in(slow)).select("stage").unique()
    uneven = unevenness(work_totals(run).join(places, on="stage", how="semi"))
    longest = uneven.group_by("class").agg(pl.col("max_ns", "mean_ns").sum())
    max_ns, mean_ns = (
        dict(longest.select("class", name).iter_rows()) for name in ("max_ns", "mean_ns")
    )
    work = class_at_fault(max_ns, mean_ns)
    if work is not None:
        return CAUSE_OF_CLASS[work]
    excess_ns = sum(max_ns.values()) - sum(mean_ns.values())
    if expert_extra_ns(run, slow) * len(averages(run).steps) >= MIN_EXPERT_SHARE * excess_ns > 0:
        return Cause.EXPERT_IMBALANCE
    encoders = encoder_totals(run).join(places, on="stage", how="semi")
    encoder = imbalance(unevenness(encoders), ENCODER, 1)
    if encoder and WITH_BACKWARD * encoder.excess_ns >= MIN_ENCODER_SHARE * excess_ns:
        return Cause.MODALITY_IMBALANCE
    own_kernels = kernels.filter(pl.col("rank").is_in(slow))
    if number(own_kernels["more_ns"].sum()) >= number(own_kernels["slower_ns"].sum()):
        is_told = longer_share(run, slow, averages(run).steps) >= MIN_LONGER_SHARE
        return Cause.SEQUENCE_LENGTH_IMBALANCE if is_told else Cause.DATA_IMBALANCE
    known = models(run)
    others = {known.get(rank) for rank in run.ranks if rank not in slow}
    own_models = {known.get(rank) for rank in slow}
    if None not in own_models | others and others and not own_models & others:
        return Cause.HETEROGENEOUS_DEVICE
    return cause_of_slowness(run)
