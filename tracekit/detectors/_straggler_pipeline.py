"""A rank that keeps its pipeline waiting: the origin of the waits for messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.averages import averages, mean_steps
from tracekit.derive.causes import (
    HOTTER_EXPERTS,
    LONGER_SEQUENCES,
    MORE,
    SLOWER,
    cause_of_lateness,
    reason,
)
from tracekit.derive.idle_totals import idle_by_cause
from tracekit.derive.kernel_totals import differences
from tracekit.derive.origins import wait_origins
from tracekit.derive.savings import saving
from tracekit.derive.stages import stages
from tracekit.derive.work_classes import ATTENTION, EXPERTS
from tracekit.derive.work_totals import class_of_stage
from tracekit.detectors import Detector, finding, number, rank_list
from tracekit.findings import Cause, Column, Confidence, Evidence, Finding, Level, Scope, Status
from tracekit.units import Quantity, Unit, text

if TYPE_CHECKING:
    from tracekit.store import Run

ASSUMES = (
    "low end: it causes as much waiting as the median stage; high end: it computes, or its host "
    "takes, as long as the median of the other stages; upper bound"
)
MIN_OF_WORST = 0.5
"""Ranks that cause half as much as the worst one are at fault with it: those of its stage."""
MIN_EXPLAINED_SHARE = 0.25
N_SHOWN = 32


def excess_waiting(run: Run) -> pl.DataFrame:
    """What each rank of a pipeline causes more than the median stage of it, in ns a step.

    In an even pipeline all stages keep each other waiting alike: that is its bubble.

    Returns:
        `rank`, `stage`, `caused_ns` (mean over the other ranks of its pipeline), `excess_ns`,
        `leads_share` (of the averaged steps); by excess, the most first. Empty without messages.
    """
    steps = averages(run).steps
    places = stages(run).filter(pl.col("n_stages") > 1)
    every = places.join(pl.DataFrame({"step": list(steps)}, schema={"step": pl.Int64}), how="cross")
    sums = wait_origins(run).group_by("step", rank="origin").agg(pl.col("dur_ns").sum())
    here = ("pipeline", "step")
    caused = every.join(sums, on=["rank", "step"], how="left", validate="1:1").with_columns(
        caused_ns=pl.col("dur_ns").fill_null(0) / (pl.col("n_stages") - 1)
    )
    in_step = caused.with_columns(
        usual_ns=pl.col("caused_ns").median().over(here),
        is_leading=pl.col("caused_ns") == pl.col("caused_ns").max().over(here),
    )
    return (
        in_step.group_by("rank", "stage")
        .agg(
            pl.col("caused_ns").mean(),
            excess_ns=(pl.col("caused_ns") - pl.col("usual_ns")).mean(),
            leads_share=pl.col("is_leading").mean(),
        )
        .sort("excess_ns", "rank", descending=[True, False])
    )


def late_in_pipeline(
    detector: Detector, run: Run, *, min_step_share: float, min_steps_share: float
) -> Finding | None:
    """The ranks that keep their pipelines waiting longest, or None where nothing stands out.

    Args:
        detector: whose finding it is.
        run: the run.
        min_step_share: they cause this much more than the median stage, of a step.
        min_steps_share: they cause most in so many of the averaged steps.
    """
    means = mean_steps(run)
    step_ns = number(means["dur_ns"].mean())
    caused = excess_waiting(run)
    late = caused.filter(
        (pl.col("excess_ns") >= min_step_share * step_ns)
        & (pl.col("leads_share") >= min_steps_share)
        & (pl.col("excess_ns") >= MIN_OF_WORST * pl.col("excess_ns").max())
    )
    if late.is_empty():
        return None
    ranks = late["rank"].sort().to_list()
    low_ns = number(late["excess_ns"].max())
    own_ns, others_ns = _compute(run, ranks)
    part, extra_ns, ranks = _largest_part(run, ranks)
    if extra_ns < MIN_EXPLAINED_SHARE * low_ns:
        return None  # it does what the others do: its micro-batches come at another time
    work = class_of_stage(run, ranks) if part == SLOWER else None
    if work is not None:
        part = {EXPERTS: HOTTER_EXPERTS, ATTENTION: LONGER_SEQUENCES}[work]
    cause = Cause.STAGE_IMBALANCE if part == MORE else cause_of_lateness(run, part)
    who = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {rank_list(ranks)}"
    keeps = "keeps" if len(ranks) == 1 else "keep"
    n_steps = len(averages(run).steps)
    return finding(
        detector,
        Status.FOUND,
        subject=who,
        title=f"{who.capitalize()} {keeps} the pipeline waiting {text(low_ns, Unit.NS)} a step "
        "longer than other stages",
        cause=cause,
        ranks=tuple(ranks),
        steps=averages(run).steps,
        measured=Quantity(min(low_ns / step_ns, 1.0), Unit.SHARE),
        limit=Quantity(min_step_share, Unit.SHARE),
        confidence=Confidence(
            Level.MEDIUM if n_steps > 1 else Level.LOW,
            f"waits for messages of {n_steps} steps, each followed to its origin",
        ),
        saving=saving(
            low_ns, max(own_ns - others_ns, extra_ns, low_ns), step_ns, means.height, ASSUMES
        ),
        evidence=(_pairs(run), caused_table(caused)),
        scope=Scope(victims=tuple(sorted(set(_victims(run, ranks)) - set(ranks)))),
        why=reason(run, part, extra_ns),
    )


def _compute(run: Run, ranks: list[int]) -> tuple[float, float]:
    """Compute of some ranks (the longest) and of all other ranks (the median), in ns a step."""
    compute = mean_steps(run).group_by("rank").agg(pl.col("compute_ns").mean())
    is_own = pl.col("rank").is_in(ranks)
    own, others = compute.filter(is_own)["compute_ns"], compute.filter(~is_own)["compute_ns"]
    return number(own.max()), number(others.median())


def _largest_part(run: Run, ranks: list[int]) -> tuple[str, float, list[int]]:
    """What these ranks have most more of than the median of the others, in ns a step.

    And those of them that have it: the others of their stage wait for them in other groups.
    """
    n_steps = max(len(averages(run).steps), 1)
    kernels = differences(run, averages(run).steps)
    parts = pl.concat(
        [
            kernels.select("rank", part=pl.lit(SLOWER), dur_ns="slower_ns"),
            kernels.select("rank", part=pl.lit(MORE), dur_ns="more_ns"),
            idle_by_cause(run, by_host_class=True).select(
                "rank", part="cause", dur_ns=pl.col("dur_ns") / n_steps
            ),
        ]
    )
    is_own, dur_ns = pl.col("rank").is_in(ranks), pl.col("dur_ns")
    extra = (
        parts.group_by("part")
        .agg(
            extra_ns=dur_ns.filter(is_own).median().fill_null(0)
            - dur_ns.filter(~is_own).median().fill_null(0)
        )
        .sort("extra_ns", "part", descending=[True, False])
    )
    part, extra_ns = str(extra["part"][0]), float(extra["extra_ns"][0])
    of_part = parts.filter(part=part)
    usual_ns = number(of_part.filter(~is_own)["dur_ns"].median())
    have = of_part.filter(is_own & (dur_ns - usual_ns >= MIN_OF_WORST * extra_ns))
    return part, extra_ns, have["rank"].unique().sort().to_list()


def _victims(run: Run, ranks: list[int]) -> list[int]:
    """Ranks that waited for these."""
    waited = wait_origins(run).filter(pl.col("origin").is_in(ranks))
    return waited["rank"].unique().to_list()


def _pairs(run: Run) -> Evidence:
    steps = averages(run).steps
    rows = (
        wait_origins(run)
        .filter(pl.col("step").is_in(list(steps)))
        .group_by("origin", "rank")
        .agg(wait_ns=pl.col("dur_ns").sum() / max(len(steps), 1))
        .sort("wait_ns", "origin", "rank", descending=[True, False, False])
    )
    return Evidence(
        title="Who kept whom waiting, through all links of the pipeline",
        columns=(
            Column("origin"),
            Column("who waited"),
            Column("exposed waiting, a step", Unit.NS),
        ),
        rows=tuple(rows.head(N_SHOWN).iter_rows()),
    )


def caused_table(caused: pl.DataFrame) -> Evidence:
    """What each rank of a pipeline causes (rows of `excess_waiting`)."""
    rows = caused.select("rank", "stage", "caused_ns", "excess_ns", "leads_share")
    return Evidence(
        title="Waiting that each rank of a pipeline causes",
        columns=(
            Column("rank"),
            Column("stage"),
            Column("mean of the other stages, a step", Unit.NS),
            Column("more than the median stage causes", Unit.NS),
            Column("steps in which it causes most", Unit.SHARE),
        ),
        rows=tuple(rows.head(N_SHOWN).iter_rows()),
    )
