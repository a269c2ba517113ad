"""Who waited for whom over the averaged steps, as a result holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.averages import averages, mean_steps
from tracekit.derive.lateness import compared_calls, exposed_waits, late_calls
from tracekit.derive.patterns import pattern
from tracekit.derive.stages import stages
from tracekit.waiting import Arrival, Meeting, RankWaiting, StepLateness, WaitedFor, Waiting

if TYPE_CHECKING:
    from tracekit.store import Run

N_PAIRS = 4096
"""Pairs of 64 ranks, or the most important ones of more."""
N_LATE_RANKS = 64
"""Ranks whose lateness is listed step by step: those that cause most waiting."""
N_MEETINGS = 3
N_ARRIVALS = 256


def waiting(run: Run) -> Waiting | None:
    """Pairs, ranks, steps and meetings; None where no collective could be compared."""
    steps = averages(run).steps
    calls = compared_calls(run)
    if calls.is_empty() or not steps:
        return None
    n_steps = len(steps)
    late = late_calls(run).filter(pl.col("step").is_in(list(steps)))
    pairs = _pairs(run, late, n_steps)
    by_step = _by_step(late)
    return Waiting(
        total_per_step_ns=float(pairs["per_step_ns"].sum()),
        matrix=tuple(WaitedFor(**row) for row in pairs.head(N_PAIRS).iter_rows(named=True)),
        ranks=_ranks(run, by_step, steps),
        by_step=tuple(StepLateness(**row) for row in _of_worst(by_step).iter_rows(named=True)),
        meetings=_meetings(late, calls),
    )


def _pairs(run: Run, late: pl.DataFrame, n_steps: int) -> pl.DataFrame:
    """`culprit`, `victim`, `per_step_ns`, the most first: each wait is shared among late ranks."""
    blame = pl.col("late_ns") / pl.col("late_ns").sum().over("instance")
    own = late.select("instance", culprit="rank", blame=blame)
    victims = exposed_waits(run).join(
        late.select("instance", "rank"), on=["instance", "rank"], how="anti"
    )
    return (
        own.join(victims, on="instance")
        .group_by("culprit", victim="rank")
        .agg(per_step_ns=(pl.col("exposed_ns") * pl.col("blame")).sum().round() / n_steps)
        .filter(pl.col("per_step_ns") > 0)
        .sort("per_step_ns", "culprit", "victim", descending=[True, False, False])
    )


def _by_step(late: pl.DataFrame) -> pl.DataFrame:
    """`rank`, `step`, `late_ns`, `caused_ns` of ranks that were late, by both."""
    return (
        late.sort("rank", "step", "instance")
        .group_by("rank", "step", maintain_order=True)
        .agg(pl.col("late_ns").sum().cast(pl.Float64), pl.col("caused_ns").sum().round())
    )


def _of_worst(by_step: pl.DataFrame) -> pl.DataFrame:
    worst = (
        by_step.group_by("rank")
        .agg(pl.col("caused_ns").sum())
        .sort("caused_ns", "rank", descending=[True, False])
        .head(N_LATE_RANKS)
    )
    return by_step.join(worst.select("rank"), on="rank", how="semi")


def _ranks(run: Run, by_step: pl.DataFrame, steps: tuple[int, ...]) -> tuple[RankWaiting, ...]:
    totals = by_step.group_by("rank").agg(pl.col("late_ns", "caused_ns").sum() / len(steps))
    means = (
        mean_steps(run)
        .group_by("rank")
        .agg(pl.col("compute_ns").mean(), waiting_ns=pl.col("exposed_waiting_ns").mean())
        .join(stages(run).select("rank", "pipeline", "stage"), on="rank", validate="1:1")
        .join(totals, on="rank", how="left", validate="1:1")
        .with_columns(pl.col("late_ns", "caused_ns").fill_null(0.0))
        .sort("rank")
    )
    series = {
        rank: dict(rows.select("step", "late_ns").iter_rows())
        for (rank,), rows in by_step.partition_by("rank", as_dict=True).items()
    }
    return tuple(
        RankWaiting(course=_course(series.get(row["rank"], {}), steps), **row)
        for row in means.iter_rows(named=True)
    )


def _course(late_ns: dict[int, float], steps: tuple[int, ...]) -> str:
    """How the lateness goes over the steps; empty where there was none."""
    return pattern([late_ns.get(step, 0.0) for step in steps]).course.value if late_ns else ""


def _meetings(late: pl.DataFrame, calls: pl.DataFrame) -> tuple[Meeting, ...]:
    """Those in which most waiting was caused, of different culprits first."""
    worst = (
        late.group_by("instance")
        .agg(
            pl.col("caused_ns").sum(),
            pl.col("step").first(),
            culprit=pl.col("rank").sort_by("late_ns").last(),
        )
        .sort("caused_ns", "instance", descending=[True, False])
    )
    first = worst.unique("culprit", keep="first", maintain_order=True)
    chosen = pl.concat([first, worst.join(first, on="instance", how="anti")]).head(N_MEETINGS)
    return tuple(
        _meeting(row, late, calls.filter(instance=row["instance"]))
        for row in chosen.iter_rows(named=True)
    )


def _meeting(row: dict[str, object], late: pl.DataFrame, members: pl.DataFrame) -> Meeting:
    """One collective; without a common clock its members are laid so that they leave together."""
    is_aligned = members["entered_ns"].null_count() == 0
    entered = (
        pl.col("entered_ns") if is_aligned else pl.col("dur_ns").max() - pl.col("dur_ns")
    ).alias("at_ns")
    late_ranks = late.filter(instance=row["instance"])["rank"].to_list()
    placed = (
        members.with_columns(entered)
        .with_columns(at_ns=pl.col("at_ns") - pl.col("at_ns").min())
        .sort("at_ns", "rank")
    )
    if placed.height > N_ARRIVALS:  # the first and the last say most
        placed = pl.concat([placed.head(N_ARRIVALS // 2), placed.tail(N_ARRIVALS // 2)])
    facts = members.row(0, named=True)
    return Meeting(
        culprit=int(str(row["culprit"])),
        step=None if row["step"] is None else int(str(row["step"])),
        group=facts["group"],
        operation=facts["operation"],
        start_ns=int(members["start_ns"].sort()[0]),
        error_ns=int(members["error_ns"].fill_null(0).sort()[-1]),
        transfer_ns=facts["transfer_ns"],
        is_aligned=is_aligned,
        arrivals=tuple(
            Arrival(
                rank=each["rank"],
                entered_ns=each["at_ns"],
                left_ns=each["at_ns"] + each["dur_ns"],
                is_late=each["rank"] in late_ranks,
            )
            for each in placed.iter_rows(named=True)
        ),
    )
